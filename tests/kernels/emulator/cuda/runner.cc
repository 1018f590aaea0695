// A launch in a process of its own, for the sanitizers: reads one case, runs it, writes the arrays
// back. Every array is one heap object, so that reading past its end is seen.
// usage: runner <case> <arrays>; sanitized.py writes the one and reads the other.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "runtime.h"

namespace {

struct Header { uint32_t kernel, count; };
struct ArgumentHeader {
  uint64_t bytes, shift;     // shift: its address, modulo ALIGNMENT
  uint32_t is_array, twin;   // twin: the first argument in the same memory, or itself
};

constexpr size_t ALIGNMENT = 128;

void read(FILE* file, void* to, size_t bytes) {
  if (fread(to, 1, bytes, file) != bytes) abort();
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) abort();
  FILE* given = fopen(words[1], "rb");
  if (!given) abort();
  emulator::Launch launch;
  Header header;
  read(given, &launch, sizeof launch);
  read(given, &header, sizeof header);
  std::vector<ArgumentHeader> headers(header.count);
  std::vector<char*> contents(header.count);
  std::vector<emulator::Argument> arguments;
  for (unsigned i = 0; i < header.count; i++) {
    ArgumentHeader& about = headers[i];
    read(given, &about, sizeof about);
    void* memory = nullptr;
    if (posix_memalign(&memory, ALIGNMENT, about.shift + about.bytes)) abort();
    contents[i] = static_cast<char*>(memory) + about.shift;
    read(given, contents[i], about.bytes);
    contents[i] = contents[about.twin];
    void* value = about.is_array ? static_cast<void*>(&contents[i]) : contents[i];
    arguments.push_back({value, about.is_array ? sizeof(void*) : about.bytes, about.is_array});
  }
  if (emulator_launch(&launch, header.kernel, arguments.data(), header.count)) {
    fprintf(stderr, "%s\n", launch.error);
    _exit(3);  // with threads half run, tearing down would be one more race
  }
  FILE* written = fopen(words[2], "wb");
  if (!written) abort();
  for (unsigned i = 0; i < header.count; i++)
    if (headers[i].is_array) fwrite(contents[i], 1, headers[i].bytes, written);
  return fclose(written);
}
