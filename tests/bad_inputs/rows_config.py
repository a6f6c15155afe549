"""Settings from elsewhere: the file of --config, TF_CONFIG, variables, host lists, token files."""

import json

import samples as s
from row import Row, table, words


def yaml(name, text, *says, command="train", file="c.yaml", **more):
    """A row whose --config file is the text."""
    return Row(name, [command, f"--config={file}"], says, files={file: text}, **more)


def js(name, text, *says, **more):
    return yaml(name, text, *says, file="c.json", **more)


FILE = table(
    "config",
    yaml("yaml_open_list", "hidden_units: [1, 2\n", "c.yaml:"),
    yaml("yaml_open_quote", 'data_dir: "here\n', "c.yaml:"),
    yaml("yaml_tab", "cluster:\n\tps: [localhost:1]\n", "c.yaml:2"),
    yaml("yaml_no_colon", "batch_size 64\n", "c.yaml:1"),
    yaml("yaml_number", "64\n", "c.yaml:1"),
    yaml("yaml_twice", "batch_size: 5\nbatch_size: 6\n", "c.yaml:2", "batch_size"),
    yaml("yaml_two_documents", "batch_size: 5\n---\nmode: ssp\n", "c.yaml:2"),
    yaml("yaml_anchor", "mode: &m ssp\n", "c.yaml:1", "nchor"),
    yaml("yaml_indent", "mode: ssp\n  batch_size: 5\n", "c.yaml:"),
    yaml("yaml_binary", b"\0\1\2\3\xff\xfe", "c.yaml"),
    yaml("yaml_latin1", b"data_dir: \xe4\xf6\n", "c.yaml"),
    yaml("yaml_deep", "a: " + "[" * 2000 + "]" * 2000, "c.yaml"),
    yaml("yaml_bool_word", "shard_data: yes\n", "c.yaml:1", "shard_data"),
    yaml("yaml_number_word", "workers: two\n", "c.yaml:1", '"two"'),
    yaml("yaml_number_fraction", "workers: 2.5\n", "c.yaml:1"),
    yaml("yaml_number_above_64_bits", "workers: 99999999999999999999\n", "c.yaml:1", "workers"),
    yaml("yaml_number_above_32_bits", "workers: 99999999999\n", "--workers", "c.yaml:1"),
    yaml("yaml_number_leading_zero", "workers: 0400\n", "c.yaml:1", '"0400"'),
    yaml("yaml_rate_minus", "learning_rate: -1\n", "learning_rate", "-1"),
    yaml("yaml_text_list", "mode: [ssp]\n", "c.yaml:1", "mode"),
    yaml("yaml_text_map", "save: {to: here}\n", "c.yaml:1", "save"),
    yaml("yaml_unknown", "momentun: 0.9\n", "c.yaml:1", "did you mean", "momentum"),
    yaml("yaml_dashes", "--mode: ssp\n", "c.yaml:1", "--mode"),
    yaml("yaml_unknown_long", "x" * 3000 + ": 1\n", "c.yaml:1"),
    yaml("yaml_key_newline", '"a\\nb": 1\n', "c.yaml:1"),
    yaml("yaml_workers_257", "workers: 257\n", "1 to 256", "257"),
    yaml("yaml_cluster_in_train", "cluster: {ps: [localhost:1], worker: [localhost:2]}\n",
         "c.yaml:1", "its own tasks"),
    yaml("yaml_task_in_train", "task: {type: worker, index: 0}\n", "c.yaml:1", "its own tasks"),
    yaml("yaml_preset_unknown", "preset: mnits\n", "mnits", "dist-mnist"),
    yaml("yaml_mode_turbo", "mode: turbo\n", "turbo", "hogwild"),
    yaml("yaml_supervised", "supervised: true\n", "c.yaml:1", "supervised", command="task"),
    yaml("yaml_config", "config: x.yaml\n", "c.yaml:1", "config"),
    yaml("yaml_help", "help: true\n", "c.yaml:1", "help"),
    yaml("yaml_host_without_port", "cluster: {ps: [localhost], worker: ['localhost:2']}\n",
         "localhost", command="task"),
    yaml("yaml_host_twice", "cluster: {ps: ['localhost:1'], worker: ['localhost:1']}\n"
         "task: {type: worker, index: 0}\n", "localhost:1", command="task"),
    yaml("yaml_hosts_in_two_ways", "ps_hosts: localhost:1\ncluster: {ps: ['localhost:1']}\n",
         "c.yaml:2", command="task"),
    yaml("yaml_task_type", "task: {type: wroker, index: 0}\n"
         "cluster: {ps: ['localhost:1'], worker: ['localhost:2']}\n", "wroker", command="task"),
    yaml("yaml_task_index", "task: {type: worker, index: first}\n", "c.yaml:1", command="task"),
    yaml("yaml_cluster_job", "cluster: {server: ['localhost:1']}\n", "server", command="task"),
    js("json_open", '{"mode": "ssp"', "c.json"),
    js("json_comment", '{"mode": "ssp"} // why', "c.json"),
    js("json_single_quotes", "{'mode': 'ssp',, }", "c.json"),
    js("json_twice", '{"mode": "ssp", "mode": "locked"}', "c.json", "mode"),
    js("json_list", '[{"mode": "ssp"}]', "c.json"),
    js("json_null", '{"mode": null}', "c.json", "mode"),
    js("json_text_for_number", '{"batch_size": "64"}', "c.json", "batch_size"),
    js("json_number_for_switch", '{"shard_data": 1}', "c.json", "shard_data"),
    js("json_huge_number", '{"batch_size": 1e999}', "c.json"),
    js("json_truncated_utf8", b'{"mode": "\xc3"}', "c.json"),
    js("json_surrogate", '{"mode": "\\ud800"}', "c.json:1"),
    Row("config_absent", "train --config=nope.yaml", ("nope.yaml", "No such file")),
    Row("config_folder", "train --config=.", (".", "regular file")),
    Row("config_pipe", "train --config=p", ("p",), files={"p": s.fifo}),
    Row("config_device", "train --config=/dev/zero", ("/dev/zero",)),
    Row("config_large", "train --config=c.yaml", ("c.yaml", "1048576"),
        files={"c.yaml": "#" * (2**20 + 1)}),
    Row("config_not_readable", "train --config=c.yaml", ("c.yaml", "Permission denied"),
        files={"c.yaml": s.with_mode("mode: ssp\n", 0)}, nobody=True),
    Row("config_empty_name", "train --config=", ("--config is empty",)),
    Row("config_newline", ["train", "--config=no\nsuch"], ("No such file",)),
)

PS, WORKER = ["localhost:1"], ["localhost:2", "localhost:3"]


def tf(name, config, *says, command="task", **more):
    text = config if isinstance(config, str) else json.dumps(config)
    return Row(name, command, says, env={"TF_CONFIG": text}, reference=True, **more)


def cluster(task=None, **jobs):
    jobs = {"ps": PS, "worker": WORKER, **jobs}
    return {"cluster": {k: v for k, v in jobs.items() if v is not None},
            "task": task or {"type": "worker", "index": 0}}


TF_CONFIG = table(
    "tf_config",
    tf("tf_text", "worker 0", "TF_CONFIG", "not JSON"),
    tf("tf_quoted_twice", '"{}"', "TF_CONFIG", "object"),
    tf("tf_twice", '{"task": {"type": "ps", "index": 0}, "task": {}}', "TF_CONFIG", "twice"),
    tf("tf_deep", "[" * 100 + "]" * 100, "TF_CONFIG", "levels"),
    tf("tf_newline", '{"task": {"type": "a\\nb", "index": 0}}', "task.type", "printable"),
    tf("tf_task_text", cluster("worker"), "TF_CONFIG task", "object"),
    tf("tf_task_without_type", cluster({"index": 0}), "job_name"),
    tf("tf_task_without_index", cluster({"type": "worker"}), "task_index"),
    tf("tf_type_number", cluster({"type": 1, "index": 0}), "task.type", "string"),
    tf("tf_type_capital", cluster({"type": "Worker", "index": 0}), "'Worker'"),
    tf("tf_index_text", cluster({"type": "worker", "index": "zero"}), "task.index", "zero"),
    tf("tf_index_minus", cluster({"type": "worker", "index": -1}), "task.index", "-1"),
    tf("tf_index_huge", cluster({"type": "worker", "index": 10**30}), "task.index"),
    tf("tf_index_above", cluster({"type": "ps", "index": 1}), "task_id", "1", "ps"),
    tf("tf_chief_not_there", cluster({"type": "chief", "index": 0}), "chief", "cluster_spec"),
    tf("tf_evaluator_5", cluster({"type": "evaluator", "index": 5}), "evaluator"),
    tf("tf_cluster_list", {"cluster": [PS, WORKER], "task": {"type": "worker", "index": 0}},
       "cluster", "dictionary"),
    tf("tf_cluster_of_another_job", cluster(server=["localhost:9"]), '"server"'),
    tf("tf_hosts_empty", cluster(worker=[]), "worker"),
    tf("tf_host_without_port", cluster(ps=["localhost"]), "localhost"),
    tf("tf_port_65536", cluster(ps=["localhost:65536"]), "65536"),
    tf("tf_host_url", cluster(ps=["grpc://localhost:1"]), "grpc://localhost:1"),
    tf("tf_host_blank", cluster(ps=[" localhost:1"]), "localhost:1"),
    tf("tf_host_newline", cluster(ps=["localhost:1\n"]), "localhost:1"),
    tf("tf_host_unicode", cluster(ps=["höst:1"]), "ps"),
    tf("tf_host_long", cluster(ps=["h" * 3000 + ":1"]), "ps"),
    tf("tf_address_twice", cluster(worker=["localhost:2", "localhost:2"]), "localhost:2"),
    tf("tf_address_of_ps_too", cluster(worker=["localhost:1"]), "localhost:1"),
    tf("tf_without_ps", cluster(ps=None), "ps"),
    tf("tf_without_worker", cluster({"type": "ps", "index": 0}, worker=None), "worker"),
    tf("tf_two_chiefs", cluster(chief=["localhost:8", "localhost:9"]), "chief"),
    tf("tf_chief_and_master", cluster(chief=["localhost:8"], master=["localhost:9"]), "master"),
    tf("tf_two_evaluators", cluster(evaluator=["localhost:8", "localhost:9"]), "evaluator"),
    tf("tf_another_host", cluster(ps=["ps-0.example.com:2222"]), "several hosts",
       "--token_file"),
    tf("tf_17_ps", cluster(ps=[f"localhost:{n}" for n in range(100, 117)]), "16 ps", "17"),
    tf("tf_257_workers", cluster(worker=[f"localhost:{n}" for n in range(100, 357)]),
       "256 workers", "257"),
)

HOSTS = ["--ps_hosts=localhost:1", "--worker_hosts=localhost:2,localhost:3"]


def task(name, flags, *says, **more):
    """A row of `task` with flags of its own."""
    return Row(name, ["task", "--job_id={job}", "--data_dir={digits}"] + words(flags), says, **more)


def worker(name, flags, *says, **more):
    return task(name, HOSTS + ["--job_name=worker", "--task_index=0"] + words(flags), *says, **more)


def ps(name, flags, *says, **more):
    return task(name, HOSTS + ["--job_name=ps", "--task_index=0"] + words(flags), *says, **more)


# A ps by hand, which waits for its workers.
SERVER = ["task", "--job_id={job}", "--data_dir={digits}", *HOSTS, "--job_name=ps",
          "--task_index=0"]


def joins(name, flags, *says, **more):
    """A row of a worker that comes to SERVER."""
    return worker(name, ["--start_wait=20"] + words(flags), *says, beside=SERVER,
                  beside_says="is ready for its workers", info=True, out="job name = worker", **more)


TASKS = table(
    "tasks",
    task("no_job_name", HOSTS + ["--task_index=0"], "explicit `job_name`"),
    task("no_index", HOSTS + ["--job_name=ps"], "explicit `task_index`"),
    task("no_ps_hosts", [HOSTS[1], "--job_name=ps", "--task_index=0"], "explicit `ps_hosts`"),
    task("no_worker_hosts", [HOSTS[0], "--job_name=ps", "--task_index=0"],
         "explicit `worker_hosts`"),
    task("index_above", HOSTS + ["--job_name=ps", "--task_index=7"], "7"),
    task("index_minus", HOSTS + ["--job_name=worker", "--task_index=-1"], "-1"),
    task("job_name_unknown", HOSTS + ["--job_name=boss", "--task_index=0"], "boss"),
    task("hosts_port_above", ["--ps_hosts=localhost:99999", HOSTS[1], "--job_name=ps",
                              "--task_index=0"], "99999"),
    task("hosts_twice", ["--ps_hosts=localhost:2,localhost:2", HOSTS[1], "--job_name=ps",
                         "--task_index=0"], "localhost:2"),
    task("index_word", HOSTS + ["--job_name=worker", "--task_index=first"], "index", '"first"'),
    task("index_empty", HOSTS + ["--job_name=worker", "--task_index="], "task_index"),
    task("index_huge", HOSTS + ["--job_name=worker", "--task_index=99999999999"], "99999999999"),
    task("index_leading_blank", HOSTS + ["--job_name=worker", "--task_index= 0"], "index"),
    task("job_name_capital", HOSTS + ["--job_name=PS", "--task_index=0"], "PS"),
    task("job_name_plural", HOSTS + ["--job_name=workers", "--task_index=0"], "workers"),
    task("job_name_newline", HOSTS + ["--job_name=ps\n", "--task_index=0"], "ps"),
    task("job_name_alone", "--job_name=worker", "task_index"),
    task("chief_not_named", HOSTS + ["--job_name=chief", "--task_index=0"], "chief",
         reference=True),
    task("second_evaluator", HOSTS + ["--job_name=evaluator", "--task_index=1"], "evaluator"),
    task("hosts_semicolon", ["--ps_hosts=localhost:1;localhost:2", HOSTS[1], "--job_name=ps",
                             "--task_index=0"], "localhost:1;localhost:2"),
    task("hosts_blank", ["--ps_hosts=localhost:1, localhost:4", HOSTS[1], "--job_name=ps",
                         "--task_index=0"], "localhost:4"),
    task("hosts_comma_last", ["--ps_hosts=localhost:1,", HOSTS[1], "--job_name=ps",
                              "--task_index=0"], "empty"),
    task("hosts_comma_twice", ["--ps_hosts=localhost:1,,localhost:4", HOSTS[1], "--job_name=ps",
                               "--task_index=0"],
         'the 2nd host of the list "localhost:1,,localhost:4" is empty'),
    task("hosts_port_hex", ["--ps_hosts=localhost:0x50", HOSTS[1], "--job_name=ps",
                            "--task_index=0"], "localhost:0x50"),
    task("hosts_another_machine", ["--ps_hosts=192.0.2.1:2222", HOSTS[1], "--job_name=ps",
                                   "--task_index=0"], "several hosts", "--token_file"),
    task("hosts_path", ["--ps_hosts=localhost:1/x", HOSTS[1], "--job_name=ps", "--task_index=0"],
         "localhost:1/x"),
    task("hosts_escape", ["--ps_hosts=\x1b[2J:1", HOSTS[1], "--job_name=ps", "--task_index=0"],
         "ps_hosts"),
    task("variable_index", "", "index", '"two"', env={
        "JOB_NAME": "worker", "TASK_INDEX": "two", "PS_HOSTS": "localhost:1",
        "WORKER_HOSTS": "localhost:2"}),
    task("variable_hosts", "", "PS_HOSTS", env={
        "JOB_NAME": "worker", "TASK_INDEX": "0", "PS_HOSTS": "localhost",
        "WORKER_HOSTS": "localhost:2"}),
    task("variable_job", "", "boss", env={
        "JOB_NAME": "boss", "TASK_INDEX": "0", "PS_HOSTS": "localhost:1",
        "WORKER_HOSTS": "localhost:2"}),
    task("keys_alone", "", "job_name", env={"PS_KEY": "localhost:1", "WORKER_KEY": "localhost:2"}),
    task("key_without_port", "--job_name=ps --task_index=0", "PS_KEY",
         env={"PS_KEY": "localhost", "WORKER_KEY": "localhost:2"}),
    task("existing_servers_alone", "--existing_servers", "--existing_servers", "cluster"),
    ps("existing_servers_of_a_ps", "--existing_servers", "--existing_servers", "ps/0"),
    worker("filters_leave_out_the_ps", "--device_filters=/job:worker/task:0", "--device_filters",
           "ps/0"),
    worker("filters_junk", "--device_filters=ps", "not a device"),
    worker("worker_of_gpus_minus", "--num_gpus=-3", "--num_gpus", "-3"),
    worker("worker_on_cuda", "--device=cuda", "worker/0", "--device cuda", "--device cpu"),
    worker("worker_slow_twice", "--slow_worker=1:5ms --slow_worker=1:7ms",
           "--slow_worker names worker/1 twice, with 5 ms and with 7 ms: give it one delay"),
    worker("worker_slow_unknown", "--slow_worker=5:10ms", "--slow_worker", "worker/5"),
    worker("worker_save_nowhere", "--save=no/m", "--save", "no/m"),
    worker("worker_pins_elsewhere", "--pin_variable=hid_w=/job:ps/task:3", "hid_w", "3"),
    worker("worker_waits_in_vain", "--start_wait=0.2", "ps/0", "--start_wait", code=143,
           info=True, out="job name = worker"),
    task("evaluator_waits_in_vain", HOSTS + ["--job_name=evaluator", "--task_index=0",
                                             "--start_wait=0.2"], "ps/0", code=143, info=True,
         out="job name = evaluator"),
    joins("worker_of_another_token", "--token_file=t", "token",
          files={"t": s.with_mode(b"x" * 32, 0o400)}),
    task("worker_of_another_cluster", ["--ps_hosts=localhost:1", "--worker_hosts=localhost:2",
                                       "--job_name=worker", "--task_index=0"], "cluster",
         beside=SERVER, beside_says="is ready for its workers", info=True, out="job name = worker"),
    joins("worker_of_a_batch_above_the_set", "--batch_size=121", "--batch_size", "120", "121"),
    ps("token_empty", "--token_file=t", "t", "32", files={"t": s.with_mode(b"", 0o400)}),
    ps("token_short", "--token_file=t", "t", "32", files={"t": s.with_mode(b"x" * 31, 0o400)}),
    ps("token_long", "--token_file=t", "t", "32", files={"t": s.with_mode(b"x" * 33, 0o400)}),
    ps("token_for_all", "--token_file=t", "t", "0644", files={"t": s.with_mode(b"x" * 32, 0o644)}),
    ps("token_for_the_group", "--token_file=t", "t", "0440",
       files={"t": s.with_mode(b"x" * 32, 0o440)}),
    ps("token_folder", "--token_file=t", "t", files={"t": s.folder}),
    ps("token_device", "--token_file=/dev/null", "/dev/null"),
    ps("token_below_nothing", "--token_file=no/t", "no/t", "No such file"),
    ps("token_below_a_file", "--token_file=f/t", "f/t", "Not a directory", files={"f": "x"}),
    ps("token_link_to_nothing", "--token_file=t", "t", files={"t": s.link_to("no/such")}),
    ps("token_newline", ["--token_file=a\nb/t"], "No such file"),
    ps("token_name_too_long", "--token_file=" + "t" * 300, "File name too long"),
    ps("runtime_folder_absent", "", "/no/such", "--token_file",
       env={"XDG_RUNTIME_DIR": "/no/such"}),
    ps("runtime_folder_a_file", "", "--token_file", env={"XDG_RUNTIME_DIR": "{work}/f"},
       files={"f": "x"}),
    ps("runtime_folder_open_to_all", "", "0700", "--token_file",
       env={"XDG_RUNTIME_DIR": "{work}"}, files={"passel": s.with_mode(None, 0o777)}),
    ps("runtime_folder_a_link", "", "0700", "--token_file", env={"XDG_RUNTIME_DIR": "{work}"},
       files={"passel": s.link_to("/tmp")}),
    ps("runtime_folder_too_long", "", "File name too long",
       env={"XDG_RUNTIME_DIR": "/" + "r" * 300}),
)

THEMES = (FILE, TF_CONFIG, TASKS)
