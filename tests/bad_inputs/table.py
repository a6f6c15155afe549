"""The table of bad inputs: theme -> rows. Its rows lie in files of one theme each."""

import rows_numbers
import rows_words

THEMES = dict(theme for module in (rows_numbers, rows_words) for theme in module.THEMES)
