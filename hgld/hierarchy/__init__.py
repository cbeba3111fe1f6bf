"""From words to a hierarchy: scrape, clean, embed, cluster, review, label."""
