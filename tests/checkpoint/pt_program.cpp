// What the library makes of .pt files: pt_program (SOURCE TARGET)... opens each SOURCE, names on standard output what
// it does not read, and writes the tensors to TARGET. pt_program --large TARGET writes a sparse file above 4 GiB.
#include <sys/mman.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string_view>

#include <ddprun/checkpoint/tensor_files.h>

#include "checkpoint/pt/pt_writer.h"
#include "tests/checkpoint/sparse_file.h"

namespace {

void write_large(const char* target) {
  constexpr int64_t kElements = (int64_t{1} << 30) + 256;
  constexpr size_t kBytes = kElements * 4;
  void* zeros = ::mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (zeros == MAP_FAILED) throw std::runtime_error("no address space");
  const float behind[] = {1, 2, 3};
  ddp::test::SparseFile file(target);
  ddp::pt::write_pt(file, {.model = {{.name = "large",
                                      .dtype = "float32",
                                      .sizes = {kElements},
                                      .bytes = {static_cast<const char*>(zeros), kBytes}},
                                     {.name = "behind",
                                      .dtype = "float32",
                                      .sizes = {3},
                                      .bytes = {reinterpret_cast<const char*>(behind), sizeof(behind)}}}});
  ::munmap(zeros, kBytes);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc == 3 && std::string_view(argv[1]) == "--large") {
    write_large(argv[2]);
    return 0;
  }
  for (int i = 1; i + 1 < argc; i += 2) {
    const auto stored = ddp::open_tensors(argv[i]);
    for (const auto& [name, what] : stored.skipped) std::printf("%s: %s: %s\n", argv[i], name.c_str(), what.c_str());
    ddp::save_pt(argv[i + 1], stored.tensors);
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
