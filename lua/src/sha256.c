/* sha256.c: the digest of a text, as FIPS 180-4 has it.
 *
 *   text -> blocks of 64 bytes, the last padded with 1 bit, zeros and the length in bits
 *   each block: 64 rounds over the 8 words of the state
 *
 * For policies that tell answers apart by what a request says: a text too long to be a key, or that
 * should not lie about in memory, becomes 64 digits; nobody can make two texts share them. */
#include "sandbox.h"

#include <string.h>

#define BLOCK 64

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes (4.2.2). */
static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotated(uint32_t x, int by) { return x >> by | x << (32 - by); }

/* One block into the state (6.2.2). */
static void sha256_block(uint32_t state[8], const unsigned char *p) {
  uint32_t w[64], s[8];
  for (int t = 0; t < 16; t++, p += 4)
    w[t] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
  for (int t = 16; t < 64; t++) {
    uint32_t a = w[t - 15], b = w[t - 2];
    w[t] = w[t - 16] + w[t - 7] + (rotated(a, 7) ^ rotated(a, 18) ^ a >> 3) +
           (rotated(b, 17) ^ rotated(b, 19) ^ b >> 10);
  }
  memcpy(s, state, sizeof s);
  for (int t = 0; t < 64; t++) {
    uint32_t e = s[4], a = s[0];
    uint32_t t1 = s[7] + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) +
                  ((e & s[5]) ^ (~e & s[6])) + round_constants[t] + w[t];
    uint32_t t2 = (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) +
                  ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
    memmove(s + 1, s, 7 * sizeof *s);
    s[4] += t1;
    s[0] = t1 + t2;
  }
  for (int i = 0; i < 8; i++) state[i] += s[i];
}

static void sha256(const unsigned char *text, size_t length, uint32_t state[8]) {
  static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  unsigned char last[2 * BLOCK] = {0};
  size_t whole = length / BLOCK * BLOCK, rest = length - whole;
  size_t last_length = rest < BLOCK - 8 ? BLOCK : 2 * BLOCK;
  memcpy(state, initial, sizeof initial);
  for (size_t at = 0; at < whole; at += BLOCK) sha256_block(state, text + at);
  if (rest) memcpy(last, text + whole, rest);
  last[rest] = 0x80;
  for (int i = 0; i < 8; i++)
    last[last_length - 1 - (size_t)i] = (unsigned char)((uint64_t)length * 8 >> 8 * i);
  for (size_t at = 0; at < last_length; at += BLOCK) sha256_block(state, last + at);
}

int neap__l_digest(lua_State *L) {
  size_t length;
  const char *text = luaL_checklstring(L, 1, &length);
  uint32_t state[8];
  char hex[64];
  neap__charge(L, NEAP__UNITS_OF(length) * 4 + 64); /* some 4 ns a byte: as dear as so many steps */
  sha256((const unsigned char *)text, length, state);
  for (int i = 0; i < 64; i++) hex[i] = "0123456789abcdef"[state[i / 8] >> (28 - i % 8 * 4) & 15];
  lua_pushlstring(L, hex, sizeof hex);
  return 1;
}
