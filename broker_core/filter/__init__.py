"""Filters on messages: tag expressions, SQL92 expressions and Bloom bitmaps, over columns."""
