// A file's checksum is that of its bytes, into however many parts it is cut and however many threads there may be.
#include "checkpoint/storage/file_checksum.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>

#include <ddprun/detail/checkpoint/storage/mapped_file.h>

#include "base/crc32c.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace ddp::storage {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::error_of;
using test::TemporaryFolder;

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Zeros, with a byte here and there.
void make_file(const std::filesystem::path& path, uint64_t size) {
  std::ofstream(path).close();
  std::filesystem::resize_file(path, size);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  for (uint64_t at = 1; at < size; at = at * 3 + 1) file.seekp(static_cast<std::streamoff>(at)).put('x');
  if (size > 0) file.seekp(static_cast<std::streamoff>(size - 1)).put('e');
}

TEST_CASE("FileChecksum: no border between parts or pieces is seen") {
  const TemporaryFolder folder;
  FileSystem files;
  const auto size = GENERATE(as<uint64_t>(), 0, 1, 256 * 1024 - 1, 256 * 1024, 256 * 1024 + 1, 64 * kMiB - 1, 64 * kMiB,
                             64 * kMiB + 1, 129 * kMiB + 12345);
  CAPTURE(size);
  make_file(folder / "file", size);
  const auto mapped = map_file(files, folder / "file");
  CHECK(file_checksum(files, folder / "file", size) == crc32c(mapped.view.data(), mapped.view.size()));
}

TEST_CASE("FileChecksum: only the first bytes count") {
  const TemporaryFolder folder;
  FileSystem files;
  test::write_file(folder / "file", "123456789 and more");
  CHECK(file_checksum(files, folder / "file", 9) == 0xe3069283);
  CHECK(file_checksum(files, folder / "file", 0) == 0);
}

TEST_CASE("FileChecksum: a file that is too short fails, whichever thread finds out") {
  const TemporaryFolder folder;
  FileSystem files;
  const auto missing = GENERATE(as<uint64_t>(), 1, 40 * kMiB, 100 * kMiB, 130 * kMiB);
  CAPTURE(missing);
  make_file(folder / "file", 130 * kMiB - missing);
  CHECK_THAT(error_of<std::system_error>([&] { file_checksum(files, folder / "file", 130 * kMiB); }),
             ContainsSubstring("became shorter") && ContainsSubstring((folder / "file").string()));
}

// Reads from `begin` on fail.
class BadSectors : public FileSystem {
 public:
  explicit BadSectors(uint64_t begin) : begin_(begin) {}
  void read(const FileDescriptor& file, void* data, size_t size, uint64_t position,
            const std::filesystem::path& path) override {
    if (position + size > begin_) throw std::system_error(EIO, std::generic_category(), "cannot read");
    FileSystem::read(file, data, size, position, path);
  }

 private:
  uint64_t begin_;
};

TEST_CASE("FileChecksum: an error of the disk in any part is reported") {
  const TemporaryFolder folder;
  make_file(folder / "file", 130 * kMiB);
  for (const uint64_t begin : {uint64_t{0}, 31 * kMiB, 70 * kMiB, 130 * kMiB - 1}) {
    BadSectors files(begin);
    INFO(begin);
    CHECK_THROWS_AS(file_checksum(files, folder / "file", 130 * kMiB), std::system_error);
  }
}

// Otherwise an intact checkpoint would count as damaged on a machine at its limit of processes.
TEST_CASE("FileChecksum: a process that may have no more threads reads alone") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  SKIP("sanitizers need address space without limit");
#endif
  const TemporaryFolder folder;
  FileSystem files;
  make_file(folder / "file", 130 * kMiB);
  const auto expected = file_checksum(files, folder / "file", 130 * kMiB);
  const auto child = ::fork();
  if (child == 0) {
    // No room for another stack, nor for one of a thread that has ended: those are used again.
    pthread_attr_t large;
    ::pthread_attr_init(&large);
    ::pthread_attr_setstacksize(&large, size_t{1} << 30);
    ::pthread_setattr_default_np(&large);
    std::ifstream status("/proc/self/statm");
    uint64_t pages = 0;
    status >> pages;
    const uint64_t most = pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) + 4 * kMiB;
    const rlimit limit{.rlim_cur = most, .rlim_max = most};
    ::setrlimit(RLIMIT_AS, &limit);
    try {
      std::thread([] {}).join();
      ::_exit(77);
    } catch (const std::system_error&) {
    }
    try {
      ::_exit(file_checksum(files, folder / "file", 130 * kMiB) == expected ? 0 : 2);
    } catch (const std::exception&) {
      ::_exit(3);
    }
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) SKIP("threads can be made here without address space");
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace ddp::storage
