"""Facts of Wikimedia: asked for over its API, or read from its dumps and saved pages."""
