#!/usr/bin/env python3
"""Golden values of random_test.cc: xoshiro256** and its seeding, written down here anew."""
import math

M = 2**64 - 1


def mix64(x):
    x = (x + 0x9e3779b97f4a7c15) & M
    x = ((x ^ (x >> 30)) * 0xbf58476d1ce4e5b9) & M
    x = ((x ^ (x >> 27)) * 0x94d049bb133111eb) & M
    return x ^ (x >> 31)


# Published outputs of SplitMix64 from state 1234567; its n-th state is 1234567 + n * gamma.
assert [mix64((1234567 + n * 0x9e3779b97f4a7c15) & M) for n in range(3)] == [
    6457827717110365317, 3203168211198807973, 9817491932198370423]


def rotl(x, k):
    return ((x << k) | (x >> (64 - k))) & M


class Xoshiro256StarStar:
    def __init__(self, state):
        self.s = list(state)

    def next(self):
        s = self.s
        result = (rotl((s[1] * 5) & M, 7) * 9) & M
        t = (s[1] << 17) & M
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotl(s[3], 45)
        return result


# Published outputs from state {1, 2, 3, 4}.
reference = Xoshiro256StarStar([1, 2, 3, 4])
assert [reference.next() for _ in range(5)] == [
    11520, 0, 1509978240, 1215971899390074240, 1216172134540287360]


def seeded(seed):
    state = []
    for _ in range(4):
        seed = mix64(seed)
        state.append(seed)
    return Xoshiro256StarStar(state)


def uniform(r):
    return (r.next() >> 11) / 2.0**53


def normal(r):
    radius = math.sqrt(-2 * math.log(1 - uniform(r)))
    return radius * math.cos(2 * math.pi * uniform(r))


def below(r, n):
    """Lemire's method; the threshold by its definition, 2^64 mod n."""
    while True:
        product = r.next() * n
        if product % 2**64 >= 2**64 % n:
            return product >> 64


for seed in (0, 1, 42, M):
    r = seeded(seed)
    print("next", seed, [hex(r.next()) for _ in range(4)])
print("mix64", [hex(mix64(x)) for x in (0, 1, M)])
print("stream", hex(mix64(mix64(mix64(7) ^ 3) ^ 5)), hex(mix64(mix64(mix64(7) ^ 3))))
r = seeded(42)
print("uniform", [uniform(r) for _ in range(3)])
r = seeded(42)
print("normal", [normal(r) for _ in range(3)])
for n in (10, 3 << 62, (1 << 63) + 1):
    r = seeded(42)
    print("below", n, [below(r, n) for _ in range(6)])

phi2 = math.exp(-2) / math.sqrt(2 * math.pi)
mass = math.erf(2 / math.sqrt(2))
print("truncated normal: std", math.sqrt(1 - 4 * phi2 / mass),
      "share within 1", math.erf(1 / math.sqrt(2)) / mass)
print("normal: shares within 0.5, 1, 2, 3", [math.erf(x / math.sqrt(2)) for x in (0.5, 1, 2, 3)])
