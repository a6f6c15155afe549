"""The table of bad inputs: theme -> rows. Its rows lie in files of one theme each."""

import rows_config
import rows_data
import rows_flags
import rows_machine
import rows_models
import rows_numbers
import rows_words

MODULES = (rows_config, rows_data, rows_flags, rows_machine, rows_models, rows_numbers, rows_words)
THEMES = dict(theme for module in MODULES for theme in module.THEMES)

NAMES = [row.name for rows in THEMES.values() for row in rows]
if len(set(NAMES)) < len(NAMES):
    raise ValueError(f"two rows have the name {[n for n in NAMES if NAMES.count(n) > 1][0]}")
