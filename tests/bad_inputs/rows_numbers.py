"""Numbers: of the wrong kind, out of their range, without a meaning beside the others."""

from row import Row, table, words


def train(name, flags, *says, **more):
    """A row of `train` with data that is there."""
    command = ["train", "--data_dir={digits}", "--job_id={job}"] + words(flags)
    return Row(name, command, says, **more)


KINDS = table(
    "numbers",
    train("batch_nan", "--batch_size=nan", "--batch_size", "whole number", '"nan"'),
    train("batch_inf", "--batch_size=inf", "--batch_size", '"inf"'),
    train("batch_hex_junk", "--batch_size=0x1g", "--batch_size", '"0x1g"'),
    train("batch_fraction", "--batch_size=10.5", "--batch_size", "whole number", '"10.5"'),
    train("batch_exponent", "--batch_size=1e2", "--batch_size", '"1e2"'),
    train("batch_unit", "--batch_size=100k", "--batch_size", '"100k"'),
    train("batch_comma", "--batch_size=1,000", "--batch_size", '"1,000"'),
    train("batch_blank", ["--batch_size= "], "--batch_size", '" "'),
    train("batch_unicode_digits", "--batch_size=١٠", "--batch_size", "whole number"),
    train("batch_plus_plus", "--batch_size=++5", "--batch_size", '"++5"'),
    train("batch_quoted", """--batch_size='"5"'""", "--batch_size"),
    train("batch_space_inside", ["--batch_size=1 0"], "--batch_size", '"1 0"'),
    train("batch_newline", ["--batch_size=10\n"], "--batch_size"),
    train("batch_escape", ["--batch_size=\x1b[31m5"], "--batch_size"),
    train("batch_2_to_63", "--batch_size=9223372036854775808", "64 bits",
          "9223372036854775808"),
    train("batch_minus_2_to_63", "--batch_size=-9223372036854775809", "--batch_size",
          "-9223372036854775809"),
    train("batch_octal", "--batch_size=010", "--batch_size", '"010"', "octal"),
    train("workers_octal", "--workers=0400", "--workers", '"0400"', "octal"),
    train("steps_minus_octal", "--train_steps=-01", "--train_steps", '"-01"', "octal"),
    train("batch_long", "--batch_size=" + "9" * 5000, "--batch_size", "999"),
    train("batch_twice", "--batch_size=5 --batch_size=6", "--batch_size is given 2 times"),
    train("batch_and_nothing", "--batch_size", "--batch_size needs a value"),
    train("workers_word", "--workers=two", "--workers", '"two"'),
    train("workers_fraction", "--workers=2.0", "--workers", '"2.0"'),
    train("workers_2_to_31", "--workers=2147483648", "--workers", "32 bits", "2147483648"),
    train("ps_word", "--ps=one", "--ps", '"one"'),
    train("steps_unit", "--train_steps=10k", "--train_steps", '"10k"'),
    train("steps_float", "--train_steps=1e6", "--train_steps", '"1e6"'),
    train("steps_0_alone", "--train_steps=0", "--train_steps 0", "--epochs", "never ends"),
    train("epochs_fraction", "--epochs=0.5", "--epochs", '"0.5"'),
    train("seed_fraction", "--seed=1.5", "--seed", '"1.5"'),
    train("seed_word", "--seed=random", "--seed", '"random"'),
    train("restarts_word", "--max_restarts=always", "--max_restarts", '"always"'),
    train("validation_minus", "--validation_size=-1", "between 0 and 120", "-1", info=True,
          reference=True),
    train("validation_above", "--validation_size=121", "between 0 and 120", "121", info=True,
          reference=True),
    train("examples_below_batch", "--train_examples=10 --batch_size=11", "--batch_size",
          "10 examples", "11", info=True),
    train("csv_train_limit_minus", "--csv_train_limit=-1", "--csv_train_limit", "-1", info=True),
    train("csv_test_limit_word", "--csv_test_limit=all", "--csv_test_limit", '"all"'),
)

REALS = table(
    "reals",
    train("memory_share_percent", "--memory_fraction=50%", "--memory_fraction", '"50%"'),
    train("memory_share_tiny", "--memory_fraction=1e-9", "ps/0 needs",
          "--memory_fraction 1e-09", "raise it", info=True),
    train("spin_unit", "--spin_us=20us", "--spin_us", '"20us"'),
    train("stall_unit", "--stall_limit=10s", "--stall_limit is a number", '"10s"'),
    train("ps_wait_word", "--ps_wait=forever", "--ps_wait is a number", '"forever"'),
    train("grace_hours", "--grace=2h", "--grace is a number", '"2h"'),
    train("rate_percent", "--learning_rate=1%", "--learning_rate is a number", '"1%"'),
    train("rate_comma", "--learning_rate=0,5", "--learning_rate is a number", '"0,5"'),
    train("rate_two_points", "--learning_rate=0.0.1", "--learning_rate", '"0.0.1"'),
    train("rate_word", "--learning_rate=fast", "--learning_rate is a number", '"fast"'),
    train("rate_overflow", "--learning_rate=1e400", "--learning_rate", "1e400"),
    train("rate_empty", "--learning_rate=", "--learning_rate is empty"),
    train("rate_underscore", "--learning_rate=1_0", "--learning_rate is a number", '"1_0"'),
    train("decay_for_adam", "--decay=0.9", "--decay", "adam", "omit it"),
)

THEMES = (KINDS, REALS)
