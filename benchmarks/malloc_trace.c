/* Logs every call of malloc, calloc, realloc, aligned_alloc and free of a process; malloc_trace.py preloads it.

   The log lies in memory that is not malloc's, so that blocks lie where they would lie without it. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

typedef struct { uint64_t call, block, size; } entry;
enum { MOST = 1 << 25 };
static entry *entries;
static volatile long used;

static void note(char call, void *block, size_t size) {
  if (!entries) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    entries = mmap(NULL, sizeof(entry) * (size_t)MOST, PROT_READ | PROT_WRITE, flags, -1, 0);
  }
  long place = __sync_fetch_and_add(&used, 1);
  if (place < MOST) entries[place] = (entry){(uint64_t)call, (uint64_t)block, size};
}

void *malloc(size_t size) { void *block = __libc_malloc(size); note('m', block, size); return block; }
void *calloc(size_t n, size_t size) { void *block = __libc_calloc(n, size); note('m', block, n * size); return block; }
void free(void *block) { if (block) note('f', block, 0); __libc_free(block); }
void *memalign(size_t to, size_t size) { void *block = __libc_memalign(to, size); note('a', block, size); return block; }
void *aligned_alloc(size_t to, size_t size) { return memalign(to, size); }

void *realloc(void *old, size_t size) {
  if (old) note('f', old, 0);
  void *block = __libc_realloc(old, size);
  note('m', block, size);
  return block;
}

int posix_memalign(void **out, size_t to, size_t size) {
  void *block = memalign(to, size);
  if (!block) return ENOMEM;
  *out = block;
  return 0;
}

/* Called before and after the session is made. */
void malloc_trace_mark(void) { note('-', NULL, 0); }

void malloc_trace_write(const char *path) {
  int file = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0644);
  const char *from = (const char *)entries;
  size_t left = sizeof(entry) * (size_t)(used < MOST ? used : MOST);
  while (left) {
    ssize_t written = write(file, from, left);
    if (written <= 0) break;
    from += written, left -= (size_t)written;
  }
  close(file);
}
