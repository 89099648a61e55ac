// IDX files. The first byte chooses the number of dimensions, and whether the rest is to be compressed.
#include <ddprun/data/file_formats.h>

#include "tests/data/formats.h"
#include "tests/data/fuzz/reader.h"
#include "tests/data/gzip.h"
#include "tests/fuzz/memory_file.h"

namespace {

constexpr std::uint8_t kCompress = 4;

}  // namespace

std::vector<std::string> fuzz::seeds() {
  using ddp::test::gzip;
  using ddp::test::idx;
  const std::string images = idx({3, 4, 5}, std::string(60, 'x'));
  return {chosen('\2', images), chosen('\2', gzip(images)), chosen('\6', images), chosen('\0', idx({7}, "abcdefg")),
          chosen('\4', idx({2}, "ab"))};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  Input input(bytes);
  const std::uint8_t kind = input.byte();
  const int dimensions = 1 + kind % kCompress;
  const std::string content(input.rest());
  const MemoryFile file((kind & kCompress) != 0 ? ddp::test::gzip(content) : content);
  return may_refuse(file.path(), [&] {
    const ddp::IdxArray array = ddp::read_idx(file.path(), dimensions);
    require(static_cast<int>(array.shape.size()) == dimensions, "the array has the dimensions that were asked for");
    std::size_t count = 1;
    for (const int64_t size : array.shape) count *= static_cast<std::size_t>(size);
    require(array.values.size() == count, "the values are as many as the shape says");
  });
}
