"""Pages of the documentation that are made from the package itself when the site is built."""
