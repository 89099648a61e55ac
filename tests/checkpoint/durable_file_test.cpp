// What a durable file says about itself is what is on the disk, however little each write takes.
#include "checkpoint/storage/durable_file.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <vector>

#include "base/crc32c.h"
#include "checkpoint/storage/file_checksum.h"
#include "tests/checkpoint/faulty_file_system.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_folder.h"

namespace ddp::storage {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::FaultyFileSystem;
using test::TemporaryFolder;

std::string noise(size_t size) {
  std::string text(size, '\0');
  uint32_t state = 1;
  for (auto& byte : text) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return text;
}

// Takes at most `most` bytes a call, and notes what the disk is told to begin with.
class SlowFileSystem : public FileSystem {
 public:
  explicit SlowFileSystem(size_t most) : max_(most) {}
  size_t write(const FileDescriptor& file, const void* data, size_t size, const std::filesystem::path& path) override {
    return FileSystem::write(file, data, std::min(size, max_), path);
  }
  void start_flush(const FileDescriptor& file, uint64_t position, uint64_t size) noexcept override {
    flushed.emplace_back(position, size);
    FileSystem::start_flush(file, position, size);
  }
  std::vector<std::pair<uint64_t, uint64_t>> flushed{};

 private:
  size_t max_;
};

TEST_CASE("DurableFile: short writes lose nothing and the checksum is the file's") {
  const TemporaryFolder folder;
  const auto most = GENERATE(as<size_t>(), 1, 7, 4095, size_t{1} << 20, size_t{1} << 30);
  CAPTURE(most);
  SlowFileSystem files(most);
  const auto text = noise(most == 1 ? 10'000 : 3'000'001);
  DurableFile file(files, folder / "file");
  file.write(text.data(), 1);
  file.write(text.data() + 1, 0);
  file.write(text.data() + 1, text.size() - 1);
  const auto record = file.finish();
  CHECK(record.size == text.size());
  CHECK(record.crc32c == crc32c(text.data(), text.size()));
  CHECK((test::read_file(folder / "file") == text));
  CHECK(file_checksum(files, folder / "file", record.size) == record.crc32c);
}

TEST_CASE("DurableFile: an empty file is a file") {
  const TemporaryFolder folder;
  FileSystem files;
  const auto record = DurableFile(files, folder / "file").finish();
  CHECK((record == FileRecord{.size = 0, .crc32c = 0}));
  CHECK(std::filesystem::is_regular_file(folder / "file"));
}

TEST_CASE("DurableFile: the disk is told of every byte once, from front to end") {
  const TemporaryFolder folder;
  SlowFileSystem files(300'000);
  const std::string piece(5'000'000, 'x');
  DurableFile file(files, folder / "file");
  for (int i = 0; i < 8; ++i) file.write(piece.data(), piece.size());
  file.finish();
  uint64_t end = 0;
  for (const auto& [position, size] : files.flushed) {
    CHECK(position == end);
    CHECK(size > 0);
    end = position + size;
  }
  UNSCOPED_INFO("the rest is for sync()");
  CHECK((end <= 8 * piece.size() && end + (uint64_t{16} << 20) > 8 * piece.size()));
}

TEST_CASE("DurableFile: what is there already is neither written nor removed") {
  const TemporaryFolder folder;
  FileSystem files;
  test::write_file(folder / "file", "kept");
  CHECK_THROWS_WITH(DurableFile(files, folder / "file"), ContainsSubstring("cannot create"));
  CHECK(test::read_file(folder / "file") == "kept");
}

TEST_CASE("DurableFile: every failure is reported, and none closes a file twice") {
  const int errors[] = {ENOSPC, EIO, EDQUOT};
  int failures = 0;
  for (int at = 0;; ++at) {
    const TemporaryFolder folder;
    FaultyFileSystem files(FaultyFileSystem::fail_at(at, errors[at % 3]));
    const std::string text(2'500'000, 'x');
    try {
      DurableFile file(files, folder / "file");
      file.write(text.data(), text.size());
      file.finish();
      break;
    } catch (const std::system_error& error) {
      CHECK(error.code().value() == errors[at % 3]);
      ++failures;
    }
  }
  UNSCOPED_INFO("create, six halves of pieces, sync, close");
  CHECK(failures == 9);
}

}  // namespace
}  // namespace ddp::storage
