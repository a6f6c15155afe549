"""Models and pictures: safetensors files, PNG and IDX files, jobs that are not there."""

import struct
import zlib

import samples as s
from row import Row, table, words

SM = s.softmax()
MLP = {"hid_w": ("F32", [64, 4], s.f32(256)), "hid_b": ("F32", [4], s.f32(4)),
       "sm_w": ("F32", [4, 10], s.f32(40)), "sm_b": ("F32", [10], s.f32(10))}
NAN = struct.pack("<I", 0x7FC00000)


def model(name, content, *says, **more):
    """A row of `eval` of m.safetensors."""
    return Row(name, "eval --params=m.safetensors --data_dir={digits}", says,
               files={"m.safetensors": content}, **more)


def header(name, text, *says, **more):
    return model(name, s.safetensors({}, header=text, data=s.f32(650)), *says, **more)


def without(tensors, name):
    return {key: value for key, value in tensors.items() if key != name}


def entry(dtype="F32", shape="[10]", offsets="[0,40]"):
    return f'{{"sm_b":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}'


SAFETENSORS = table(
    "models",
    model("model_empty", b"", "m.safetensors", "0 bytes"),
    model("model_pickle", b"\x80\4\x95\x10\0\0\0\0\0\0\0\x8c\5torch\x94.", "m.safetensors"),
    model("model_hdf5", b"\x89HDF\r\n\x1a\n" + bytes(500), "m.safetensors"),
    model("model_header_too_long", s.safetensors(SM, length=2**40), "m.safetensors",
          "1099511627776"),
    model("model_cut", s.safetensors(SM)[:-100], "m.safetensors", "cut off"),
    header("header_no_tensor", "{}", "m.safetensors"),
    header("header_twice", entry()[:-1] + "," + entry()[1:], "twice in one object"),
    header("header_unknown_type", entry("F33"), "F33"),
    header("header_shape_huge", entry(shape="[4294967296,4294967296,4294967296]"), "sm_b"),
    header("header_offsets_beyond", entry(offsets="[0,4000000]"), "m.safetensors"),
    header("header_other_size", entry(shape="[11]"), "sm_b", "[11]", "40 bytes"),
    model("tensors_none", s.safetensors({}), "m.safetensors"),
    model("tensors_of_others", s.safetensors({"layer.weight": ("F32", [2], s.f32(2))}),
          "m.safetensors", "no tensor"),
    model("tensors_lack_bias", s.safetensors(without(SM, "b")), 'no tensor "b"'),
    model("tensors_lack_weights", s.safetensors(without(SM, "w")), "no tensor"),
    model("tensors_lack_hidden_bias", s.safetensors(without(MLP, "hid_b")), "hid_b"),
    model("tensors_lack_output", s.safetensors(without(without(MLP, "sm_w"), "sm_b")), "sm_"),
    model("tensors_of_f16", s.safetensors({**SM, "w": ("F16", [64, 10], bytes(1280))}), '"w"',
          "F16"),
    model("tensors_of_f64", s.safetensors({**SM, "b": ("F64", [10], bytes(80))}), '"b"',
          "F64"),
    model("tensors_of_integers", s.safetensors({**SM, "w": ("I32", [64, 10], bytes(2560))}),
          '"w"', "I32"),
    model("tensors_of_rank_3", s.safetensors({**SM, "w": ("F32", [8, 8, 10], s.f32(640))}),
          '"w"', "rank 3"),
    model("tensors_transposed", s.safetensors({**SM, "w": ("F32", [10, 64], s.f32(640))}),
          '"b"', "10 rows", "64"),
    model("tensors_of_other_pixels", s.safetensors(s.softmax(784)), "784", "64",
          info=True),
    model("tensors_of_fewer_classes", s.safetensors(s.softmax(64, 7)), "7", "10",
          info=True),
    model("tensors_of_no_class", s.safetensors({"w": ("F32", [64, 0], b""),
                                                "b": ("F32", [0], b"")}), "classes is 0"),
    model("tensors_hidden_do_not_fit", s.safetensors({**MLP, "sm_w": ("F32", [5, 10], s.f32(50))}),
          "sm_w", "5 rows", "4"),
    model("tensors_hidden_bias_longer", s.safetensors({**MLP, "hid_b": ("F32", [5], s.f32(5))}),
          "hid_b", "5", "4"),
    model("tensors_not_finite", s.safetensors({**SM, "b": ("F32", [10], NAN * 10)}), code=0,
          out="accuracy"),
    Row("model_absent", "eval --params=nope --data_dir={digits}", ("nope", "No such file")),
    model("model_of_a_newer_passel",
          s.safetensors({}, header='{"__metadata__":{"format":"passel-3"}}', data=b""),
          "m.safetensors", "passel-3", "newer passel"),
    Row("model_folder", "eval --params=. --data_dir={digits}", (". has no checkpoint",)),
    Row("model_folder_broken_index", "eval --params=. --data_dir={digits}",
        ("checkpoint", "line 1 of the index"), files={"checkpoint": b"x\n"}),
    Row("model_folder_lost_checkpoint", "eval --params=. --data_dir={digits}",
        ("no checkpoint that is whole",), warns="model.ckpt-7.safetensors is not there",
        files={"checkpoint": b'all_model_checkpoint_paths: "model.ckpt-7"\n'}),
    Row("model_checkpoint_absent", "eval --params=model.ckpt-7 --data_dir={digits}",
        ("model.ckpt-7.safetensors is not there",)),
    Row("model_pipe", "eval --params=pipe --data_dir={digits}", ("pipe",),
        files={"pipe": s.fifo}),
    Row("model_device", "eval --params=/dev/zero --data_dir={digits}", ("/dev/zero",)),
    Row("model_link_to_nothing", "eval --params=m --data_dir={digits}", ("m", "No such file"),
        files={"m": s.link_to("gone")}),
    Row("model_not_readable", "eval --params=m --data_dir={digits}", ("m", "Permission denied"),
        files={"m": s.with_mode(b"x", 0)}, nobody=True),
    Row("model_newline", ["eval", "--params=no\nsuch", "--data_dir={digits}"], ("No such file",)),
    Row("model_empty_name", "eval --params= --data_dir={digits}", ("--params is empty",)),
    Row("model_without_data", "eval --params={model} --data_dir=nope", ("nope", "No such file")),
)


CHECKPOINTS = table(
    "checkpoints",
    Row("ckpt_alone", "ckpt", ("a command is missing", "ls, show, verify, diff, export")),
    Row("ckpt_ls_absent", "ckpt ls nope", ("cannot list nope", "No such file")),
    Row("ckpt_ls_file", "ckpt ls {model}", ("is no folder", "name the folder")),
    Row("ckpt_ls_broken_index", "ckpt ls .", ("checkpoint", "line 1 of the index"),
        files={"checkpoint": b"x\n"}),
    Row("ckpt_show_pickle", "ckpt show m", ("m: ",), files={"m": b"\x80\4\x95\x10" + bytes(60)}),
    Row("ckpt_show_newer", "ckpt show m.safetensors", ("passel-3", "newer passel"),
        files={"m.safetensors": s.safetensors({}, header='{"__metadata__":{"format":"passel-3"}}',
                                              data=b"")}),
    Row("ckpt_show_best_of_none", "ckpt show best", ("no best checkpoint",),
        files={"checkpoint": b""}),
    Row("ckpt_verify_without_sums", "ckpt verify m.safetensors", ("m.safetensors", "no checksums"),
        files={"m.safetensors": s.safetensors(SM)}),
    Row("ckpt_verify_cut", "ckpt verify m.safetensors", ("m.safetensors", "cut off"), code=1,
        out="m.safetensors: broken", files={"m.safetensors": s.safetensors(SM)[:-100]}),
    Row("ckpt_verify_lost", "ckpt verify .", ("model.ckpt-7", "is not there"), code=1,
        out="./model.ckpt-7: broken",
        files={"checkpoint": b'all_model_checkpoint_paths: "model.ckpt-7"\n'}),
    Row("ckpt_diff_one", "ckpt diff {model}", ("B is required",)),
    Row("ckpt_export_ending", "ckpt export {model} v.pb", ("v.pb", ".safetensors nor .npz")),
    Row("ckpt_export_itself", "ckpt export m.safetensors m.safetensors", ("both name",),
        files={"m.safetensors": s.safetensors(SM)}),
    Row("ckpt_export_slots_of_a_model", "ckpt export {model} v.npz --slots",
        ("no slot variables", "omit --slots")),
    Row("ckpt_export_over_an_index", "ckpt export {model} model.ckpt-5.safetensors",
        ("name of a checkpoint",)),
    Row("ckpt_json_over_a_checkpoint", "ckpt ls . --json=model.ckpt-5.safetensors",
        ("--json", "name of a checkpoint")),
    Row("ckpt_json_over_the_model", "ckpt show m.safetensors --json=./m.safetensors",
        ("--json", "both name"), files={"m.safetensors": s.safetensors(SM)}),
    Row("ckpt_export_into_nothing", "ckpt export {model} nope/v.npz", ("nope", "No such file")),
)


def picture(name, content, *says, flags="", **more):
    return Row(name, ["predict", "--params={model}", "p.png"] + words(flags), says,
               files={"p.png": content}, **more)


GOOD = s.png(8, 8)
LINES = zlib.compress((b"\0" + b"\xff" * 8) * 8)

PICTURES = table(
    "pictures",
    picture("picture_empty", b"", "p.png"),
    picture("picture_text", "P2 8 8 255", "p.png", "PNG"),
    picture("picture_jpeg", b"\xff\xd8\xff\xe0\0\x10JFIF" + bytes(100), "p.png", "PNG"),
    picture("picture_gif", b"GIF89a" + bytes(100), "p.png", "PNG"),
    picture("picture_signature_alone", GOOD[:8], "p.png", "corrupt"),
    picture("picture_cut_in_the_head", GOOD[:20], "p.png", "corrupt"),
    picture("picture_cut_in_the_data", GOOD[:-25], "p.png", "corrupt"),
    picture("picture_without_end", GOOD[:45], "p.png", "corrupt"),
    picture("picture_flipped", GOOD[:45] + b"\xff\xff" + GOOD[47:], "p.png", "corrupt"),
    picture("picture_head_sum", GOOD[:30] + b"\0" + GOOD[31:], "p.png", "corrupt"),
    picture("picture_dos_lines", GOOD.replace(b"\r\n", b"\n"), "p.png"),
    picture("picture_no_width", s.png(0, 8), "p.png"),
    picture("picture_no_height", s.png(8, 0), "p.png"),
    picture("picture_huge", s.png(2**31 - 1, 2**31 - 1, LINES), "p.png"),
    picture("picture_wide", s.png(100000, 1, LINES), "p.png", "100000 x 1"),
    picture("picture_many_pixels", s.png(16000, 16000, LINES), "p.png", "16000 x 16000"),
    picture("picture_depth_3", s.png(8, 8, depth=3), "p.png", "corrupt"),
    picture("picture_colour_7", s.png(8, 8, colour=7), "p.png", "corrupt"),
    picture("picture_interlace_9", s.png(8, 8, LINES, interlace=9), "p.png", "corrupt"),
    picture("picture_palette_missing", s.png(8, 8, colour=3), "p.png", "corrupt"),
    picture("picture_few_lines", s.png(8, 8, zlib.compress(b"\0" + b"\xff" * 8)), "p.png",
            "corrupt"),
    picture("picture_no_zlib", s.png(8, 8, b"not compressed"), "p.png", "corrupt"),
    picture("picture_not_square", s.png(9, 8), "9 x 8", "8 x 8", "square"),
    picture("picture_one_line", s.png(12, 1), "12 x 1", "square"),
    picture("idx_of_another_size", s.images(3, 9), "9 x 9", "64"),
    picture("idx_of_labels", s.labels(20), "magic", "p.png"),
    picture("idx_cut", s.images(3)[:-1], "p.png", "cut off"),
    picture("idx_gz_cut", s.squeezed(s.images(3))[:60], "p.png", "cut off"),
    picture("idx_huge", s.idx([2**26, 8, 8], bytes(64)), "p.png", "4294967312"),
    picture("top_0", GOOD, "--top", "0", flags="--top=0"),
    picture("top_11", GOOD, "--top", "at most the 10 classes", flags="--top=11"),
    picture("top_word", GOOD, "--top", '"all"', flags="--top=all"),
    picture("top_minus", GOOD, "--top", "-1", flags="--top=-1"),
    picture("limit_minus", GOOD, "--limit", "-1", flags="--limit=-1"),
    picture("one_of_two_is_broken", GOOD, "nope.png", "No such file", flags="nope.png",
            warns="light at its rim"),
    Row("picture_folder", "predict --params={model} .", (".", "regular file")),
    Row("picture_pipe", "predict --params={model} pipe", ("pipe",), files={"pipe": s.fifo}),
    Row("picture_device", "predict --params={model} /dev/zero", ("/dev/zero",)),
    Row("picture_not_readable", "predict --params={model} p.png", ("p.png", "Permission denied"),
        files={"p.png": s.with_mode(GOOD, 0)}, nobody=True),
    Row("picture_newline", ["predict", "--params={model}", "a\nb.png"], ("No such file",)),
    Row("picture_standard_input", "predict --params={model} -", ("-", "No such file"), stdin=GOOD),
    Row("predict_empty_name", ["predict", "--params={model}", ""], ("is empty",)),
)

EVALUATION = table(
    "evaluation",
    Row("eval_of_nothing", "eval --data_dir={digits}", ("none", "--params", "--job",
                                                        "exactly one")),
    Row("eval_of_both", "eval --params={model} --job=x --data_dir={digits}", ("both",
                                                                             "exactly one")),
    Row("eval_of_no_job", "eval --job=nope --data_dir={digits}", ("no job nope",
                                                                 "passel ctl list")),
    Row("predict_of_no_job", "predict --job=nope p.png", ("no job nope",),
        files={"p.png": GOOD}),
    Row("eval_job_newline", ["eval", "--job=a\nb", "--data_dir={digits}"], ("job",)),
    Row("eval_wait_0", "eval --job=nope --wait=0", ("--wait", "above 0", "not 0")),
    Row("eval_wait_nan", "eval --job=nope --wait=nan", ("--wait", "nan")),
    Row("eval_wait_word", "eval --job=nope --wait=long", ("--wait is a number", '"long"')),
    Row("eval_set_all", "eval --params={model} --data_dir={digits} --set=all", ("--set", "all",
                                                                               "validation")),
    Row("eval_set_newline", ["eval", "--params={model}", "--data_dir={digits}", "--set=a\nb"],
        ("--set", "validation")),
    Row("eval_json_to_nowhere", "eval --params={model} --data_dir={digits} --json=no/e.json",
        ("--json", "no/e.json", "No such file")),
    Row("eval_json_to_a_folder", "eval --params={model} --data_dir={digits} --json=.", ("--json",)),
    Row("eval_json_to_a_device", "eval --params={model} --data_dir={digits} --json=/dev/full",
        ("--json", "/dev/full")),
    Row("eval_csv_limit", "eval --params={model} --data_dir={digits} --csv_test_limit=-1",
        ("--csv_test_limit", "-1"), info=True),
    Row("eval_json_over_the_model", "eval --params=m.safetensors --json=m.safetensors",
        ("--json", "--params", "two files"), files={"m.safetensors": s.safetensors(SM)}),
)

THEMES = (SAFETENSORS, CHECKPOINTS, PICTURES, EVALUATION)
