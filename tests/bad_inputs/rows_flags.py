"""The flags of a job, one at a time."""

from row import table
from rows_numbers import train

FLAGS = table(
    "flags",
    train("unknown_flag", "--no_such_flag=1", "--no_such_flag", "--help"),
    train("not_a_number", "--batch_size=ten", "--batch_size", "ten"),
    train("zero_batch", "--batch_size=0", "--batch_size", "1 to", "not 0"),
    train("batch_above_the_set", "--batch_size=121", "--batch_size", "120", "121",
          info=True),
    train("batch_above_the_smallest_shard", "--shard_data --workers=7 --batch_size=18",
          "--batch_size is at most the 17 of 120 training", "7 workers", "not 18", info=True),
    train("max_workers_below", "--workers=3 --max_workers=2", "--max_workers is 3 to 256",
          "not 2"),
    train("max_workers_above", "--max_workers=257", "--max_workers is", "to 256", "not 257"),
    train("max_workers_shard_data", "--shard_data --max_workers=4", "--shard_data",
          "--max_workers", "omit"),
    train("max_workers_device", "--arena=device --max_workers=4", "--arena device",
          "--max_workers", "--arena host"),
    train("max_workers_alone", "--ps=0 --workers=1 --max_workers=2", "--max_workers 2", "--ps 1"),
    train("max_workers_replicas", "--mode=replicas --replicas_to_aggregate=9 --max_workers=4",
          "--replicas_to_aggregate", "4 workers of --max_workers", "not 9", info=True),
    train("nothing_left_to_train_with", "--validation_size=120", "--validation_size 120",
          "120 training", "--validation_size=12", info=True),
    train("too_many_ps", "--ps=100000", "0 to", "100000", "--ps"),
    train("unknown_mode", "--mode=turbo", "turbo", "hogwild", "barrier"),
    train("unknown_pin", "--pin=hard", "hard", "none", "--pin"),
    train("misspelt_flag", "--worker=2", "--worker ", "did you mean --workers?"),
    train("empty_value", "--save=", "--save", "empty"),
    train("empty_number", ["--workers", ""], "--workers", "empty"),
    train("negative_seed", "--seed=-1", "--seed", "0 to 18446744073709551615", "-1"),
    train("seed_above_all", "--seed=18446744073709551616", "--seed", "709551616"),
    train("huge_seconds_as_typed", "--stall_limit=100000000000000000000",
          "--stall_limit is 0.05 to 1000000 s, not 100000000000000000000: use "
          "--stall_limit=1000000 or less"),
    train("threads_above_an_int", "--threads_per_worker=99999999999", "--threads_per_worker",
          "fits 32 bits", "99999999999"),
    train("one_file_for_two", "--save=/tmp/passel-one --report=/tmp/../tmp/passel-one", "--report",
          "--save", "two files"),
    train("log_file_is_a_folder", "--log_file=.", "--log_file", "Is a directory"),
    train("log_file_in_no_folder", "--log_file=no/l", "--log_file", "No such file"),
    train("log_file_is_a_device", "--log_file=/dev/null", "--log_file", "/dev/null", "plain file"),
    train("log_format_unknown", "--log_format=xml", "--log_format", "xml", "text or json"),
    train("bad_log_level", "--log_level=loud", "loud", "debug"),
    train("save_in_no_folder", "--train_steps=100000000 --save=/no/such/folder/m.safetensors",
          "--save", "/no/such/folder", "No such file", "another path"),
)

THEMES = (FLAGS,)
