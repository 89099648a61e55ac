// A fuzz target as libFuzzer calls it.
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
