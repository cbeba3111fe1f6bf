"""A data set's own files become landmarks and images: GLDv2, any folder, a made world."""
