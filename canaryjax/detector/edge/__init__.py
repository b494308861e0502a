"""The site's edge: a page is stamped per request and logged, and the log is read back."""
