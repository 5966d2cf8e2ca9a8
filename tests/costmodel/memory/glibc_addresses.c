/* Prints glibc_addresses.csv: random calls of malloc, aligned_alloc and free, and where the blocks lie.

   gcc -O1 -o addresses glibc_addresses.c && ./addresses > glibc_addresses.csv    (Debian 12, glibc 2.36, x86-64)

   Each line is a call: "m" or "a", the number of bytes, and the distance of the block from the first one, or "pages"
   for a block with pages of its own; or "f" and which of the live blocks is freed, whose place the last of them takes. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint32_t state = 1;
static void *live[4000];
static struct { char call; uint32_t number; void *block; } calls[4000];

static uint32_t below(uint32_t limit) {
  state = state * 1664525u + 1013904223u;
  return (state >> 8) % limit;
}

int main(void) {
  int num_live = 0, num_calls = 0;
  for (; num_calls < 2500; num_calls++) {
    if (num_live && below(100) < 46) {
      uint32_t place = below(num_live);
      free(live[place]);
      live[place] = live[--num_live];
      calls[num_calls].call = 'f', calls[num_calls].number = place;
    } else {
      uint32_t kind = below(10);
      uint32_t size = kind < 5   ? 1 + below(200)
                      : kind < 8 ? 200 + below(3000)
                      : kind < 9 ? 3000 + below(120000)
                                 : 100000 + below(900000);
      char call = below(3) ? 'm' : 'a';
      void *block = call == 'm' ? malloc(size) : aligned_alloc(64, size);
      live[num_live++] = block;
      calls[num_calls].call = call, calls[num_calls].number = size, calls[num_calls].block = block;
    }
  }
  for (int i = 0; i < num_calls; i++) {
    intptr_t distance = (char *)calls[i].block - (char *)calls[0].block;
    printf("%c,%u,", calls[i].call, calls[i].number);
    if (calls[i].call != 'f' && (distance < 0 || distance > 1L << 32))
      printf("pages\n");
    else if (calls[i].call != 'f')
      printf("%ld\n", (long)distance);
    else
      printf("\n");
  }
}
