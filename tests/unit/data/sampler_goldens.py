"""Prints the orders that samplers_test.cc expects: an independent xoshiro256** in Python.

Sources: SplitMix64 (Steele, Lea, Flood 2014), xoshiro256** (Blackman, Vigna 2018), bounded
numbers by Lemire's method (2019), Fisher-Yates from the last place down.
"""

MASK = (1 << 64) - 1


def mix64(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def stream_seed(seed, a, b=0):
    return mix64(mix64(mix64(seed) ^ a) ^ b)


def rotate(x, k):
    return ((x << k) | (x >> (64 - k))) & MASK


class Random:
    def __init__(self, seed):
        self.s = []
        for _ in range(4):
            seed = mix64(seed)
            self.s.append(seed)

    def next(self):
        s = self.s
        result = (rotate((s[1] * 5) & MASK, 7) * 9) & MASK
        t = (s[1] << 17) & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotate(s[3], 45)
        return result

    def below(self, n):
        threshold = (1 << 64) % n
        while True:
            product = self.next() * n
            if (product & MASK) >= threshold:
                return product >> 64


def domain(name):
    return int.from_bytes(name.encode(), "big")


def epoch_order(n, seed, worker, epoch):
    random = Random(stream_seed(stream_seed(seed, domain("epoch")), worker, epoch))
    order = list(range(n))
    for i in range(n, 1, -1):
        j = random.below(i)
        order[i - 1], order[j] = order[j], order[i - 1]
    return order


def random_batch(n, batch, seed, worker, k):
    random = Random(stream_seed(stream_seed(seed, domain("batch")), worker, k))
    pool = list(range(n))
    for i in range(batch):
        j = i + random.below(n - i)
        pool[i], pool[j] = pool[j], pool[i]
    return pool[:batch]


for args in ((10, 7, 0, 0), (10, 7, 0, 1), (10, 7, 3, 0)):
    print("epoch_order(n, seed, worker, epoch) =", args, epoch_order(*args))
print("first of epoch_order(60000, 1, 2, 5)", epoch_order(60000, 1, 2, 5)[:5])
for args in ((1000, 6, 7, 0, 0), (1000, 6, 7, 0, 1), (1000, 6, 7, 1, 0)):
    print("random_batch(n, batch, seed, worker, k) =", args, random_batch(*args))
