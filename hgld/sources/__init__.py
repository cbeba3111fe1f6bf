"""A data set's own files become landmarks and images: GLDv2, folders, other sets, a made world."""
