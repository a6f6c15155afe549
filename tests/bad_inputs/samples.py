"""Makes the files of the table: data sets, models, pictures, whole and broken."""

import gzip
import io
import json
import os
import stat
import struct
import zipfile
import zlib

NOBODY = 65534  # the user without rights

IDX_NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte",
             "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
TRAIN, TEST, SIDE = 120, 20, 8  # of {digits}: images of SIDE x SIDE pixels, 10 classes


def pixels(count, side=SIDE):
    """Bytes that look like nothing, the same in every run."""
    x, data = 1, bytearray()
    for _ in range(count * side * side):
        x = (1103515245 * x + 12345) % 2**31
        data.append(x >> 16 & 0xff)
    return bytes(data)


def idx(sizes, data, kind=8, magic=b"\0\0"):
    return magic + bytes([kind, len(sizes)]) + b"".join(struct.pack(">I", s) for s in sizes) + data


def images(count, side=SIDE):
    return idx([count, side, side], pixels(count, side))


def labels(count, classes=10):
    return idx([count], bytes(i % classes for i in range(count)))


def data_set(**replaced):
    """Files of a whole data set in data/, but for those replaced (None: omitted), by
    train_images, train_labels, test_images, test_labels."""
    files = {"train_images": images(TRAIN), "train_labels": labels(TRAIN),
             "test_images": images(TEST), "test_labels": labels(TEST)}
    unknown = replaced.keys() - files.keys()
    if unknown:
        raise ValueError(f"no file of a data set: {unknown}")
    files.update(replaced)
    return {"data/" + name: content
            for name, content in zip(IDX_NAMES, files.values()) if content is not None}


def safetensors(tensors, data=None, header=None, length=None):
    """A file of tensors: name -> (dtype, shape, bytes). `header`, `data` and `length` replace what
    would follow from them."""
    entries, body = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        entries[name] = {"dtype": dtype, "shape": shape,
                         "data_offsets": [len(body), len(body) + len(content)]}
        body += content
    text = (json.dumps(entries) if header is None else header)
    text = text.encode() if isinstance(text, str) else text
    text += b" " * (-len(text) % 8)
    size = len(text) if length is None else length
    return struct.pack("<Q", size) + text + (body if data is None else data)


def f32(count, value=0.01):
    return struct.pack("<f", value) * count


def softmax(inputs=SIDE * SIDE, classes=10):
    """The tensors of a softmax regression."""
    return {"w": ("F32", [inputs, classes], f32(inputs * classes)),
            "b": ("F32", [classes], f32(classes))}


def png(width, height, body=None, depth=8, colour=0, interlace=0, chunks=b"", end=True):
    """A grey picture. `body`: the compressed lines instead of white ones."""
    def chunk(name, data):
        return (struct.pack(">I", len(data)) + name + data +
                struct.pack(">I", zlib.crc32(name + data)))
    if body is None:
        body = zlib.compress((b"\0" + b"\xff" * width) * height)
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunks + chunk(b"IDAT", body) +
            (chunk(b"IEND", b"") if end else b""))


def npy(descr, shape, data):
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + data


def zipped(members):
    """A zip archive of name -> bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def npz(**replaced):
    """mnist.npz with some arrays replaced (None: omitted)."""
    arrays = {"x_train": npy("|u1", (TRAIN, 28, 28), pixels(TRAIN, 28)),
              "y_train": npy("|u1", (TRAIN,), bytes(i % 10 for i in range(TRAIN))),
              "x_test": npy("|u1", (TEST, 28, 28), pixels(TEST, 28)),
              "y_test": npy("|u1", (TEST,), bytes(i % 10 for i in range(TEST)))}
    arrays.update(replaced)
    return zipped({name + ".npy": data for name, data in arrays.items() if data is not None})


def csv_lines(count, side=28):
    data = pixels(count, side)
    size = side * side
    return [",".join([str(i % 10)] + [str(p) for p in data[i * size:(i + 1) * size]])
            for i in range(count)]


def csv_set(train=None, test=None):
    """mnist_train.csv and mnist_test.csv in data/; the lines of one may be others."""
    return {"data/mnist_train.csv": "\n".join(csv_lines(4) if train is None else train) + "\n",
            "data/mnist_test.csv": "\n".join(csv_lines(2) if test is None else test) + "\n"}


def squeezed(data):
    return gzip.compress(data, mtime=0)


def folder(path):
    os.mkdir(path)


def fifo(path):
    os.mkfifo(path)


def link_to(target):
    return lambda path: os.symlink(target, path)


def with_mode(content, mode):
    """A file or folder (None) with a mode of its own."""
    def make(path):
        if content is None:
            os.mkdir(path)
        else:
            with open(path, "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode())
        os.chmod(path, mode)
    return make


def give_to_nobody(top):
    """Files that must stay root's are made with a link or a mode that says so."""
    os.chown(top, NOBODY, NOBODY)
    for path, names, files in os.walk(top):
        for name in names + files:
            full = os.path.join(path, name)
            if not stat.S_ISLNK(os.lstat(full).st_mode):
                os.chown(full, NOBODY, NOBODY)


def shared_files(top):
    """The data set and the model that all rows may read: places by name."""
    digits = os.path.join(top, "digits")
    os.mkdir(digits)
    for name, content in data_set().items():
        with open(os.path.join(digits, os.path.basename(name)), "wb") as file:
            file.write(content)
    model = os.path.join(top, "model.safetensors")
    with open(model, "wb") as file:
        file.write(safetensors(softmax()))
    return {"top": top, "digits": digits, "model": model}
