"""The engine that everything above is given: a catalog, its committer, its mirror, and handles on its tables."""
