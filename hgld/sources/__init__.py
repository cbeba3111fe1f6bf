"""Sources: readers that turn a data set's files into tables of landmarks and images, and fetch."""
