"""Data that cannot be read: IDX files, npz archives, CSV files, and where they lie."""

import samples as s
from row import Row, table, words


def check(name, files, *says, flags="", **more):
    """A row of `data check` of data/."""
    more.setdefault("info", True)
    return Row(name, ["data", "check", "--data_dir=data"] + words(flags), says, files=files, **more)


def one_file(name, content, *says, **more):
    return Row(name, "data check --data_dir=mnist.npz", says, files={"mnist.npz": content},
               info=True, **more)


def gz(name, **replaced):
    """A data set with one file compressed, or broken, under its name with .gz."""
    files = s.data_set(**{name: None})
    index = ("train_images", "train_labels", "test_images", "test_labels").index(name)
    files[f"data/{s.IDX_NAMES[index]}.gz"] = replaced[name]
    return files


PACKED = s.squeezed(s.images(s.TRAIN))
CSV = s.csv_lines(4)

IDX = table(
    "idx",
    check("images_one_byte_short", s.data_set(train_images=s.images(120)[:-1]), s.IDX_NAMES[0],
          "cut off", "7696", "7695"),
    check("images_one_byte_more", s.data_set(train_images=s.images(120) + b"x"), s.IDX_NAMES[0],
          "trailing bytes", "7696", "7697"),
    check("labels_one_more", s.data_set(train_labels=s.labels(121)), "120 images", "121 labels"),
    check("images_and_labels_changed_places", s.data_set(train_images=s.labels(120),
                                                         train_labels=s.images(120)),
          "magic", "2049", s.IDX_NAMES[0], "2051", reference=True),
    check("images_zero", s.data_set(train_images=s.idx([0, 8, 8], b"")), s.IDX_NAMES[0],
          "0 images"),
    check("images_without_rows", s.data_set(test_images=s.idx([20, 0, 8], b"")), s.IDX_NAMES[2],
          "0 x 8"),
    check("images_2_to_32", s.data_set(train_images=s.idx([2**32 - 1, 8, 8], bytes(64))),
          s.IDX_NAMES[0], "4294967295"),
    check("images_of_another_size", s.data_set(test_images=s.images(20, 9)), "8 x 8", "9 x 9"),
    check("test_label_above_all", s.data_set(test_labels=s.idx([20], bytes([11]) * 20)),
          s.IDX_NAMES[3], "label 11", "9"),
    check("no_train_images", s.data_set(train_images=None), "lacks", s.IDX_NAMES[0]),
    check("no_labels", s.data_set(train_labels=None, test_labels=None), "lacks", s.IDX_NAMES[1],
          s.IDX_NAMES[3]),
    check("a_git_pointer", s.data_set(train_images=b"version https://git-lfs.github.com/spec/v1\n"
                                      b"oid sha256:0\nsize 7696\n"), "magic", s.IDX_NAMES[0]),
    check("gz_cut", gz("train_images", train_images=PACKED[:1000]), s.IDX_NAMES[0] + ".gz",
          "cut off"),
    check("gz_wrong_sum", gz("train_images", train_images=PACKED[:-8] + b"\1\2\3\4" + PACKED[-4:]),
          s.IDX_NAMES[0] + ".gz", "corrupt"),
    check("gz_with_more", gz("train_images", train_images=PACKED + b"junk"),
          s.IDX_NAMES[0] + ".gz", "after the end"),
    check("gz_of_text", gz("test_labels", test_labels=s.squeezed(b"not labels")), "magic",
          s.IDX_NAMES[3] + ".gz"),
    check("gz_bomb", gz("train_images", train_images=s.squeezed(s.idx([120, 8, 8], bytes(10**6)))),
          s.IDX_NAMES[0] + ".gz", "trailing"),
    check("name_of_a_folder", {**s.data_set(train_images=None), "data/" + s.IDX_NAMES[0]: s.folder},
          "lacks", s.IDX_NAMES[0], "each a file"),
    check("name_of_a_pipe", {**s.data_set(train_images=None), "data/" + s.IDX_NAMES[0]: s.fifo},
          "lacks", s.IDX_NAMES[0], "each a file"),
    check("name_of_a_device", {**s.data_set(train_images=None),
                               "data/" + s.IDX_NAMES[0]: s.link_to("/dev/zero")},
          "lacks", s.IDX_NAMES[0], "each a file"),
    check("link_to_nothing", {**s.data_set(train_images=None),
                              "data/" + s.IDX_NAMES[0]: s.link_to("gone")}, s.IDX_NAMES[0]),
    check("link_to_itself", {**s.data_set(train_images=None),
                             "data/" + s.IDX_NAMES[0]: s.link_to(s.IDX_NAMES[0])}, s.IDX_NAMES[0]),
    check("file_not_readable", {**s.data_set(train_images=None),
                                "data/" + s.IDX_NAMES[0]: s.with_mode(s.images(120), 0)},
          s.IDX_NAMES[0], "Permission denied", nobody=True),
    check("folder_not_readable", {"data": s.with_mode(None, 0)}, "Permission denied", nobody=True),
    check("folder_empty", {"data": s.folder}, "no data set", s.IDX_NAMES[0]),
    check("folder_of_text", {"data/README": "hello\n"}, "no data set"),
    check("check_validation_above", s.data_set(), "between 0 and 120", "121",
          flags="--validation_size=121", reference=True),
    Row("train_of_a_broken_set", "train --data_dir=data", (s.IDX_NAMES[2], "cut off"),
        files=s.data_set(test_images=s.images(20)[:-1]), info=True),
)

NPZ = table(
    "npz",
    one_file("npz_empty", b"", "mnist.npz"),
    one_file("npz_text", "label,1x1\n", "mnist.npz"),
    one_file("npz_no_zip", b"PK\3\4 and then nothing", "mnist.npz", "zip"),
    one_file("npz_cut", s.npz()[:3000], "mnist.npz", "cut off"),
    one_file("npz_without_arrays", s.zipped({}), "mnist.npz"),
    one_file("npz_of_others", s.zipped({"arr_0.npy": s.npy("|u1", (3,), b"abc")}), "lacks",
             "x_train.npy"),
    one_file("npz_lacks_labels", s.npz(y_test=None), "lacks", "y_test.npy"),
    one_file("npz_of_floats", s.npz(x_train=s.npy("<f4", (120, 28, 28), bytes(4 * 120 * 784))),
             "x_train.npy", "'<f4'", "uint8"),
    one_file("npz_pickled", s.npz(y_train=s.npy("|O", (120,), b"\x80\4K\0.")), "y_train.npy",
             "'descr'"),
    one_file("npz_label_300", s.npz(y_test=s.npy("<i8", (20,), (300).to_bytes(8, "little") * 20)),
             "label number 0", "y_test.npy", "300"),
    one_file("npz_test_label_above", s.npz(y_test=s.npy("|u1", (20,), b"\x0b" * 20)), "label 11"),
    one_file("npz_no_images", s.npz(x_train=s.npy("|u1", (0, 28, 28), b"")), "x_train.npy",
             "(0, 28, 28)"),
    one_file("npz_huge", s.npz(x_train=s.npy("|u1", (2**40, 28, 28), b"")), "x_train.npy",
             str(2**40)),
    one_file("npz_shape_overflow", s.npz(x_train=s.npy("|u1", (2**63, 28, 28), b"")), "x_train"),
    one_file("npz_array_cut", s.npz(x_train=s.npy("|u1", (120, 28, 28), bytes(1000))),
             "x_train.npy", "cut off"),
    one_file("npz_array_more", s.npz(x_test=s.npy("|u1", (20, 28, 28), bytes(20 * 784 + 1))),
             "x_test.npy", "trailing"),
    Row("npz_absent", "data check --data_dir=nope.npz", ("nope.npz", "No such file")),
    Row("npz_twice", "data locate --data_dir=data", ("a.npz", "b.npz", "name an npz file itself"),
        files={"data/a.npz": s.npz(), "data/b.npz": s.npz()}),
)


def csv(name, train_lines, *says, **more):
    return check(name, s.csv_set(train=train_lines), *says, **more)


CSV_FILES = table(
    "csv",
    csv("csv_ragged", CSV[:1] + [CSV[1] + ",1"] + CSV[2:], "mnist_train.csv:2"),
    csv("csv_quoted", ['"' + CSV[0].replace(",", '","') + '"'] + CSV[1:], "mnist_train.csv"),
    csv("csv_nan", CSV[:2] + ["3,nan" + "," + ",".join(["0"] * 783)], "mnist_train.csv:3",
        '"nan"'),
    csv("csv_nothing", [], "mnist_train.csv"),
    csv("csv_header_alone", ["label," + ",".join(f"1x{i}" for i in range(1, 785))],
        "mnist_train.csv", "no examples"),
    csv("csv_header_in_the_middle", CSV + ["label," + ",".join(["p"] * 784)], "mnist_train.csv:5"),
    csv("csv_binary", ["\0\1\2" * 50], "mnist_train.csv"),
    csv("csv_utf16", ["\ufeff" + CSV[0]] + CSV[1:], "mnist_train.csv"),
    csv("csv_long_line", ["1," * 60000], "mnist_train.csv:1"),
    check("csv_one_alone", {"data/mnist_train.csv": "\n".join(CSV) + "\n"},
          "lacks mnist_test.csv"),
    Row("csv_as_data_dir", "data check --data_dir=data/mnist_train.csv",
        ("one of two CSV files", "name the directory"), files=s.csv_set()),
    check("csv_test_label_above", s.csv_set(test=["200" + CSV[0][1:], CSV[1]]), "label 200"),
    check("csv_beside_npz", {**s.csv_set(), "data/mnist.npz": s.npz()}, "mnist.npz",
          "mnist_train.csv"),
    check("csv_of_other_names", {f"data/{name}.csv": "\n".join(CSV) for name in ("a", "b")},
          "a.csv, b.csv", "mnist_train.csv"),
    check("csv_link_to_nothing", {"data/mnist_train.csv": s.link_to("gone"),
                                  "data/mnist_test.csv": "\n".join(CSV)}, "data"),
)

SOURCES = table(
    "sources",
    Row("data_dir_absent", "data check --data_dir=/no/such/place", ("/no/such/place",
                                                                   "No such file")),
    Row("data_dir_a_file", "data check --data_dir=/etc/hostname", ("/etc/hostname", "npz")),
    Row("data_dir_below_a_file", "data check --data_dir=/etc/hostname/x", ("/etc/hostname/x",
                                                                          "Not a directory")),
    Row("data_dir_too_long", "data check --data_dir=/" + "x" * 300, ("File name too long",)),
    Row("data_dir_newline", ["data", "check", "--data_dir=no\nsuch"], ("No such file",)),
    Row("data_dir_bytes", ["data", "check", "--data_dir=\x01\x1b[31m"], ("No such file",)),
    Row("data_dir_empty", "data check --data_dir=", ("--data_dir is empty",)),
    Row("data_dir_null_device", "data check --data_dir=/dev/null", ("/dev/null",)),
    Row("data_dir_by_environment", "data check", ("PASSEL_DATA_DIR", "/no/such/place"),
        env={"PASSEL_DATA_DIR": "/no/such/place"}),
    Row("train_data_dir_by_environment", "train", ("PASSEL_DATA_DIR", "/no/such/place"),
        env={"PASSEL_DATA_DIR": "/no/such/place"}, info=True),
    # Not even root makes a folder there.
    Row("no_place_for_data", "train --train_steps=1",
        ("no data was found, and /proc/.cache/passel cannot keep any (",
         "name a directory with data (--data_dir)"), env={"HOME": "/proc"}, info=True),
    Row("train_data_dir_a_pipe", "train --data_dir=pipe", ("pipe",), files={"pipe": s.fifo},
        info=True),
    Row("fake_and_data_dir", "data check --fake_data --data_dir={digits}", ("--fake_data",
                                                                           "omit one")),
    Row("url_without_host", "data download --download_url=http://", ("--download_url", "http://")),
    Row("url_of_a_file", "data download --download_url=file:///etc/", ("--download_url",
                                                                      "file:///etc/")),
    Row("url_without_scheme", "data download --download_url=example.com/mnist",
        ("--download_url", "example.com/mnist")),
    Row("url_with_password", "data download --download_url=http://me:secret@example.com/",
        ("--download_url", "the URL")),
    Row("url_with_a_query", "data download --download_url=http://example.com/?q=1",
        ("--download_url",)),
    Row("url_with_a_newline", ["data", "download", "--download_url=http://example.com/\nx"],
        ("--download_url",)),
    Row("url_port", "data download --download_url=http://example.com:99999/", ("--download_url",)),
    Row("generate_nowhere", "data generate", ("directory", "passel data generate --help")),
    Row("generate_below_nothing", "data generate no/such/place", ("no/such/place", "No such file")),
    Row("generate_below_a_file", "data generate /etc/hostname/x", ("/etc/hostname/x",
                                                                  "Not a directory")),
    Row("generate_into_a_file", "data generate file", ("cannot create file", "File exists"),
        files={"file": "x"}),
    Row("generate_no_right", "data generate /proc/x", ("/proc/x",)),
    Row("generate_none", "data generate out --train=0", ("--train is 1 to", "not 0")),
    Row("generate_minus", "data generate out --train=-5", ("--train", "from 0 on", '"-5"')),
    Row("generate_too_many", "data generate out --test=4294967295",
        ("--test is 1 to", "4294967295")),
    Row("generate_seed_word", "data generate out --seed=x", ("--seed", '"x"')),
    Row("locate_absent", "data locate --data_dir=nope", ("nope", "No such file")),
    Row("download_limit", "data download --csv_train_limit=5", ("--csv_train_limit", "not known")),
)

THEMES = (IDX, NPZ, CSV_FILES, SOURCES)
