import hgld  # noqa: F401  first: its torchvision hook has to be in place before open_clip and timm
