// .pt files above 4 GiB, as sparse files: the gigabytes are zeros that take no room on the disk.
#include <sys/mman.h>

#include <cstring>
#include <string>

#include "checkpoint/pt/pickler.h"
#include "checkpoint/pt/pt_file.h"
#include "checkpoint/pt/pt_writer.h"
#include "checkpoint/pt/zip_reader.h"
#include "tests/checkpoint/sparse_file.h"
#include "tests/checkpoint/zip_forms.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

namespace ddp::pt {
namespace {

// 4.004 GiB; the checksum is the one that torch.save wrote for them.
constexpr uint64_t kZeros = 4'299'161'600;
constexpr uint32_t kZerosCrc32 = 0x7f74208b;
constexpr int64_t kElements = kZeros / 4;

std::string pickle_of_two() {
  Pickler pickler;
  pickler.begin_dict();
  pickler.text("large");
  pickler.tensor({.storage = "0", .dtype = "float32", .sizes = {kElements}, .strides = {1}}, kElements);
  pickler.text("behind");
  pickler.tensor({.storage = "1", .dtype = "float32", .sizes = {2}, .strides = {1}}, 2);
  pickler.end_dict();
  return pickler.take();
}

// Behind the large storage stand small ones, whose headers are beyond 4 GiB.
void write_as_torch(test::SparseFile& file, bool has_checksums) {
  test::TorchZip zip(file, has_checksums);
  zip.add("archive/data.pkl", pickle_of_two());
  zip.add_zeros("archive/data/0", kZeros, kZerosCrc32);
  zip.add("archive/data/1", "12345678");
  zip.add("archive/empty", "");
  zip.add("archive/version", "3\n");
  zip.finish();
}

storage::Bytes map(const std::filesystem::path& path) {
  storage::FileSystem file_system;
  return storage::map_file(file_system, path);
}

TEST_CASE("LargeFile: what torch saves above four gigabytes is read") {
  const test::TemporaryFolder folder;
  test::SparseFile sparse(folder / "large.pt");
  write_as_torch(sparse, true);
  const PtFile file(map(folder / "large.pt"), "large.pt");
  CHECK(file.has_checksums());
  CHECK(file.bytes_of(file.root().find("large")->tensor()).size() == kZeros);
  CHECK(file.bytes_of(file.root().find("behind")->tensor()) == "12345678");
}

// Without checksums, which spares reading the zeros for every try.
TEST_CASE("LargeFile: damage of its headers is noticed") {
  const test::TemporaryFolder folder;
  test::SparseFile sparse(folder / "large.pt");
  write_as_torch(sparse, false);
  const auto bytes = map(folder / "large.pt");
  const auto intact = ZipReader(bytes.view).entries();
  const auto is_data = [&](size_t position) {
    return std::any_of(intact.begin(), intact.end(), [&](const auto& entry) {
      const auto begin = static_cast<size_t>(entry.data.data() - bytes.view.data());
      return position >= begin && position < begin + entry.data.size();
    });
  };
  size_t tried = 0;
  for (size_t i = 0; i < bytes.view.size(); ++i) {
    if (i == 4096) i = static_cast<size_t>(kZeros);
    if (is_data(i)) continue;
    sparse.flip(static_cast<off_t>(i), static_cast<char>(1 << i % 8));
    INFO("byte " << i);
    CHECK_THROWS_AS(ZipReader(map(folder / "large.pt").view).verify(), FormatError);
    sparse.flip(static_cast<off_t>(i), static_cast<char>(1 << i % 8));
    ++tried;
  }
  CHECK(tried > 800);
  ZipReader(map(folder / "large.pt").view).verify();
}

TEST_CASE("LargeFile: what is written above four gigabytes is read") {
  const test::TemporaryFolder folder;
  void* zeros = ::mmap(nullptr, kZeros, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(zeros != MAP_FAILED);
  {
    test::SparseFile sparse(folder / "ours.pt");
    write_pt(sparse, {.model = {{.name = "large",
                                 .dtype = "float32",
                                 .sizes = {kElements},
                                 .bytes = {static_cast<const char*>(zeros), kZeros}},
                                {.name = "behind", .dtype = "float32", .sizes = {2}, .bytes = "12345678"}}});
  }
  ::munmap(zeros, kZeros);
  const auto bytes = map(folder / "ours.pt");
  const ZipReader zip(bytes.view);
  CHECK(zip.find("archive/data/0")->crc32 == kZerosCrc32);
  CHECK(zip.find("archive/data/0")->size == kZeros);
  CHECK(zip.find("archive/data/1")->data == "12345678");
}

}  // namespace
}  // namespace ddp::pt
