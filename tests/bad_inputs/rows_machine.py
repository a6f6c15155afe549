"""The machine and what runs on it: jobs, outputs, limits, topology files, benchmarks."""

import json

import samples as s
from row import Row, table, words
from rows_numbers import train

LONG = ["train", "--data_dir={digits}", "--job_id={job}", "--train_steps=1000000000"]

JOBS = table(
    "jobs",
    Row("ctl_status_of_none", "ctl status", ("no job",)),
    Row("ctl_status_unknown", "ctl status nope", ("no job nope", "passel ctl list")),
    Row("ctl_status_json_unknown", "ctl status nope --json", ("no job nope",)),
    Row("ctl_status_two", "ctl status a b", ('"b"',)),
    Row("ctl_status_newline", ["ctl", "status", "a\nb"], ("no job",)),
    Row("ctl_status_escape", ["ctl", "status", "\x1b[2J"], ("no job",)),
    Row("ctl_stop_of_none", "ctl stop", ("no job",)),
    Row("ctl_stop_unknown", "ctl stop nope", ("no job nope",)),
    Row("ctl_stop_empty", ["ctl", "stop", ""], ("is empty",)),
    Row("ctl_stop_path", "ctl stop ../../etc", ("no job ../../etc",)),
    Row("ctl_set_mode_alone", "ctl set-mode", ("mode is required", "passel ctl set-mode --help")),
    Row("ctl_set_mode_of_none", "ctl set-mode ssp", ("no job",)),
    Row("ctl_set_mode_unknown", "ctl set-mode nope ssp", ("no job nope",)),
    Row("ctl_set_mode_turbo", "ctl set-mode turbo", ("turbo", "hogwild")),
    Row("ctl_set_mode_three", "ctl set-mode a b ssp",
        ("at most 2", "not 3", "passel ctl set-mode --help")),
    Row("ctl_set_mode_replicas_0", "ctl set-mode replicas --replicas_to_aggregate=0",
        ("--replicas_to_aggregate", "not 0")),
    Row("ctl_set_mode_replicas_word", "ctl set-mode replicas --replicas_to_aggregate=all",
        ("--replicas_to_aggregate", '"all"')),
    Row("ctl_set_mode_replicas_for_ssp", "ctl set-mode ssp --replicas_to_aggregate=2",
        ("replicas",)),
    Row("ctl_set_mode_bound_for_hogwild", "ctl set-mode hogwild --staleness_bound=2",
        ("--staleness_bound", "hogwild", "ssp")),
    Row("ctl_set_mode_bound_minus", "ctl set-mode ssp --staleness_bound=-1", ("-1",)),
    Row("ctl_set_mode_wait_0", "ctl set-mode ssp --wait=0", ("--wait is 0.1", "not 0")),
    Row("ctl_set_mode_wait_nan", "ctl set-mode ssp --wait=nan", ("--wait", "nan")),
    Row("ctl_scale_alone", "ctl scale", ("--workers is required", "passel ctl scale --help")),
    Row("ctl_scale_of_none", "ctl scale --workers=2", ("no job",)),
    Row("ctl_scale_unknown", "ctl scale nope --workers=2", ("no job nope",)),
    Row("ctl_scale_word", "ctl scale --workers=all", ("--workers", '"all"')),
    Row("ctl_scale_wait_0", "ctl scale --workers=2 --wait=0", ("--wait is 0.1", "not 0")),
    Row("ctl_scale_0", "ctl scale {job} --workers=0", ("at least 1 worker", "not 0", "ctl stop"),
        beside=LONG, beside_says="steps/s"),
    Row("ctl_scale_above", "ctl scale {job} --workers=500", ("not 500", "--max_workers 500"),
        beside=LONG, beside_says="steps/s"),
    Row("ctl_status_beside_another", "ctl status nope", ("no job nope",), beside=LONG,
        beside_says="steps/s"),
    Row("ctl_set_mode_of_a_job", "ctl set-mode {job} turbo", ("turbo",), beside=LONG,
        beside_says="steps/s"),
    Row("second_job_of_a_name", LONG, ("{job}", "running already"), beside=LONG,
        beside_says="steps/s", info=True),
    Row("second_ps_of_a_job", "task --job_name=ps --task_index=0 --ps_hosts=localhost:1 "
        "--worker_hosts=localhost:2 --job_id={job} --data_dir={digits}", ("ps/0", "{job}"),
        beside=LONG, beside_says="steps/s", info=True, out="job name = ps"),
    Row("predict_of_another_model", "predict --job={job} p.png", ("9 x 8", "8 x 8"), beside=LONG,
        beside_says="steps/s", files={"p.png": s.png(9, 8)}),
    *(Row("job_id_" + name, ["train", "--data_dir={digits}", "--job_id=" + job],
          ("job id", f"{len(job.encode())} bytes", "letter"), info=True)
      for name, job in (("blank", "a b"), ("dot_first", ".a"), ("dash_first", "-a"),
                        ("newline", "a\nb"), ("umlaut", "jöb"), ("colon", "a:b"), ("at", "@a"),
                        ("dots", ".."), ("star", "*"), ("long", "j" * 5000))),
    Row("job_id_empty", "train --job_id=", ("--job_id is empty",)),
)

OUTPUTS = table(
    "outputs",
    train("save_folder_at_the_end", "--save=out/", "--save", "out/"),
    train("save_here", "--save=.", "--save", "directory"),
    train("save_pipe", "--save=p", "--save", "p", files={"p": s.fifo}),
    train("save_null", "--save=/dev/null", "--save", "/dev/null"),
    train("save_link", "--save=l", "--save", "symbolic link", files={"l": s.link_to("m")}),
    train("save_link_loop", "--save=l", "--save", files={"l": s.link_to("l")}),
    train("save_name_too_long", "--save=" + "m" * 300, "--save", "300 bytes", "shorter"),
    train("save_newline", ["--save=no\nsuch/m"], "--save", "No such file"),
    train("save_in_a_read_only_folder", "--save=d/m", "--save", "d", "Permission denied",
          files={"d": s.with_mode(None, 0o555)}, nobody=True),
    train("save_over_a_read_only_folder", "--save=/sys/m", "--save", "/sys"),
    train("save_to_another_users_folder", "--save=/root/m", "--save", "/root", nobody=True),
    train("logs_dir_is_a_file", "--logs_dir=f", "--logs_dir f", "not a folder", files={"f": b"x"}),
    train("logs_dir_is_null", "--logs_dir=/dev/null", "--logs_dir", "not a folder"),
    train("summary_secs_negative", "--logs_dir=l --summary_secs=-1", "--summary_secs", "-1"),
    train("histogram_secs_nan", "--logs_dir=l --histogram_secs=nan", "--histogram_secs", "nan"),
    train("summary_steps_fraction", "--logs_dir=l --summary_steps=0.5", "--summary_steps", "0.5"),
    train("report_folder", "--report=.", "--report", "directory"),
    train("report_nowhere", "--report=no/r.json", "--report", "no", "No such file"),
    train("report_pipe", "--report=p", "--report", files={"p": s.fifo}),
    train("page_folder", "--report_html=.", "--report_html", "directory"),
    train("page_nowhere", "--report_html=no/r.html", "--report_html", "no", "No such file"),
    train("page_printed", "--report_html=-", "--report_html -", "name one"),
    train("page_and_report", "--report_html=x --report=x", "--report_html", "--report",
          "two files"),
    train("page_over_the_settings", "--config=c.yaml --report_html=c.yaml", "--report_html",
          "--config", "two files", files={"c.yaml": "mode: ssp\n"}),
    train("save_and_report", "--save=x --report=./x", "--report", "--save", "two files"),
    train("save_over_the_settings", "--config=c.yaml --save=c.yaml", "--save", "--config",
          "two files", files={"c.yaml": "mode: ssp\n"}),
    train("report_over_the_settings", "--config=c.yaml --report=c.yaml", "--report", "--config",
          "two files", files={"c.yaml": "mode: ssp\n"}),
    train("report_is_the_next_flag", "--report --workers=2", "--report needs a value",
          "--workers=2"),
    Row("save_on_a_full_disk", "train --data_dir={digits} --job_id={job} --train_steps=5 "
        "--workers=1 --save=full/m", ("full/m", "No space left"), code=1, info=True, root=True,
        files={"full": s.folder}, shell="mount -t tmpfs -o size=4k none full; echo x > full/x",
        out="exited with 0", stays=("full", "full/x")),
    Row("bench_json_nowhere", "bench --seconds=1 --json=no/b.json", ("--json", "no/b.json")),
    Row("bench_json_folder", "bench --seconds=1 --json=.", ("--json", "directory")),
    Row("stdout_full", "topology --json", ("not everything could be printed", "No space left"),
        code=1, shell="exec > /dev/full"),
    Row("stdout_full_data", "data check --data_dir={digits}", ("not everything could be printed",),
        code=1, info=True, shell="exec > /dev/full"),
    Row("stdout_full_preset", "train --print_preset monitored",
        ("not everything could be printed",), code=1, shell="exec > /dev/full"),
    Row("stdout_full_help", "train --help", ("not everything could be printed",), code=1,
        shell="exec > /dev/full"),
    Row("stdout_for_reading", "topology --json",
        ("not everything could be printed", "Bad file descriptor"), code=1,
        shell="exec 1< /dev/null"),
)


def limited(name, limit, *says, flags="", **more):
    """A row of `train` under a limit of the shell."""
    return train(name, ["--train_steps=50"] + words(flags), *says, shell=limit, **more)


LIMITS = table(
    "limits",
    limited("descriptors_4", "ulimit -n 4", "open files", "ulimit -n", info=True),
    limited("descriptors_8", "ulimit -n 8", "open files", "ulimit -n", info=True),
    limited("descriptors_10", "ulimit -n 10", "open files", "ulimit -n", info=True),
    limited("descriptors_for_16_ps", "ulimit -n 40", "open files", flags="--ps=16 --workers=16",
            info=True),
    limited("file_size", "ulimit -f 8", "24576 bytes", "File too large", "ulimit -f", info=True),
    limited("address_space_60_mib", "ulimit -v 60000", "address space", "ulimit -v",
            plain_memory=True, info=True),
    limited("address_space_150_mib", "ulimit -v 150000", "address space", "ulimit -v",
            plain_memory=True, info=True),
    limited("address_space_alone", "ulimit -v 150000", "address space", "ulimit -v",
            flags="--ps=0 --workers=1", plain_memory=True, info=True),
    Row("address_space_of_an_eval", "eval --params={model} --data_dir={digits}",
        ("address space", "ulimit -v"), info=True, shell="ulimit -v 150000", plain_memory=True),
    Row("address_space_of_a_prediction", "predict --params={model} p.png",
        ("address space", "ulimit -v"), files={"p.png": s.png(8, 8)}, warns="light at its rim",
        shell="ulimit -v 150000", plain_memory=True),
    limited("processors_of_cores", "true", "--bind core", flags="--workers=200 --bind=core"),
    Row("home_not_absolute", "data download", ("XDG_CACHE_HOME", "HOME", "--data_dir"),
        nobody=True, env={"HOME": "here"}),
    Row("no_home", "data download", ("XDG_CACHE_HOME", "HOME", "--data_dir"), nobody=True,
        env={"HOME": "(unset)"}),
)

NODE = {"index": 0, "cores": ["0", "1"]}
MACHINE = {"passel_topology": 1, "numa_nodes": [NODE], "gpus": [], "no_gpu_reason": "none here"}
GPU = {"uuid": "GPU-1", "name": "A", "memory_bytes": 2**34, "compute_capability": "9.0",
       "pci_address": "0000:1b:00.0", "numa_node": 0}


def topology(name, changes, *says, **more):
    """A row of `topology --file` of a machine with changes (None: omitted)."""
    machine = {**MACHINE, **changes} if isinstance(changes, dict) else changes
    if isinstance(machine, dict):
        machine = json.dumps({key: value for key, value in machine.items() if value is not None})
    return Row(name, "topology --file=t.json", ("t.json",) + says, files={"t.json": machine},
               **more)


def with_gpu(name, changes, *says):
    gpu = {key: value for key, value in {**GPU, **changes}.items() if value is not None}
    return topology(name, {"gpus": [gpu], "no_gpu_reason": None}, "gpus[0]", *says)


TOPOLOGY = table(
    "topology",
    topology("topology_empty", ""),
    topology("topology_cut", json.dumps(MACHINE)[:-5], "JSON"),
    topology("topology_deep", "[" * 500, "levels"),
    topology("topology_format_text", {"passel_topology": "1"}, "passel_topology"),
    topology("topology_key", {"numa_node": []}, "numa_node", "did you mean", "numa_nodes"),
    topology("topology_without_nodes", {"numa_nodes": None}, "numa_nodes", "missing"),
    topology("topology_nodes_object", {"numa_nodes": {}}, "numa_nodes", "list"),
    topology("topology_node_number", {"numa_nodes": [0]}, "numa_nodes[0]", "object"),
    topology("topology_node_index_minus", {"numa_nodes": [{**NODE, "index": -1}]}, "index", "-1"),
    topology("topology_node_index_huge", {"numa_nodes": [{**NODE, "index": 2**40}]}, "index"),
    topology("topology_core_range", {"numa_nodes": [{**NODE, "cores": ["3-1"]}]}, "core"),
    topology("topology_quota", {"processor_quota": 1.5}, "processor_quota", "1.5"),
    topology("topology_comment", {"comment": 5}, "comment", "text"),
    topology("topology_escape", {"comment": "\x1b[2J"}, "comment", "printable"),
    topology("topology_without_nvml", {"without_nvml": "yes"}, "without_nvml", "true or false"),
    topology("topology_gpus_object", {"gpus": {}}, "gpus", "list"),
    topology("topology_links_text", {"links": "NV4"}, "links"),
    with_gpu("gpu_without_uuid", {"uuid": None}, "uuid", "missing"),
    with_gpu("gpu_key", {"memory": 1}, '"memory"'),
    Row("topology_file_absent", "topology --file=nope", ("nope", "No such file")),
    Row("topology_file_folder", "topology --file=.", (".", "regular file")),
    Row("topology_file_pipe", "topology --file=p", ("p",), files={"p": s.fifo}),
    Row("topology_file_large", "topology --file=t", ("t", "8388608 bytes", "1048576"),
        files={"t": " " * (2**23)}),
    train("topology_without_dry_run", "--topology=t.json", "--topology t.json", "--dry_run",
          files={"t.json": json.dumps(MACHINE)}),
    train("dry_run_of_no_file", "--dry_run --topology=nope", "nope", "No such file"),
    train("dry_run_of_one_process", "--ps=0 --workers=1 --dry_run", "--dry_run", "--ps 1"),
    train("dry_run_gpu_of_none", "--dry_run --topology=t.json --gpus=0", "--gpus", "none here",
          files={"t.json": json.dumps(MACHINE)}),
    train("dry_run_gpu_5", "--dry_run --topology=t.json --gpus=5", "--gpus", "GPU 5",
          files={"t.json": json.dumps({**MACHINE, "gpus": [GPU], "no_gpu_reason": ""})}),
    train("dry_run_gpu_twice", "--dry_run --topology=t.json --gpus=0,0", "--gpus", "twice",
          files={"t.json": json.dumps({**MACHINE, "gpus": [GPU], "no_gpu_reason": ""})}),
    train("dry_run_too_many_cores", "--dry_run --topology=t.json --workers=9 --bind=core",
          "--bind core", "9 workers", files={"t.json": json.dumps(MACHINE)}),
    Row("bench_elements_minus", "bench --elements=-1", ("--elements is 1 to", "-1")),
    Row("bench_elements_word", "bench --elements=many", ("--elements", '"many"')),
    Row("bench_elements_above", "bench --elements=16777217", ("16777217", "--elements=16777216 or less")),
    Row("bench_optimizer_rmsprop", "bench --optimizer=rmsprop", ("rmsprop", "sgd, adam, adagrad")),
    Row("bench_optimizer_newline", ["bench", "--optimizer=a\nb"], ("adam",)),
    Row("bench_workers_0", "bench --workers=0", ("--workers", "not 0")),
    Row("bench_workers_above", "bench --workers=100000", ("--workers", "100000")),
    Row("bench_seconds_0", "bench --seconds=0", ("--seconds is 1 to 60", "not 0")),
    Row("bench_seconds_61", "bench --seconds=61", ("--seconds is 1 to 60", "not 61")),
    Row("bench_seconds_nan", "bench --seconds=nan", ("--seconds", "nan")),
    Row("bench_seconds_unit", "bench --seconds=5s", ("--seconds is a number", '"5s"')),
)

THEMES = (JOBS, OUTPUTS, LIMITS, TOPOLOGY)
