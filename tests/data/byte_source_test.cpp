// Reading plain and gzip files with every length checked.
#include <sys/stat.h>

#include <ddprun/data/byte_source.h>

#include "tests/data/gzip.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

class ByteSourceTest {
 protected:
  fs::path file(const std::string& content) const {
    test::write_file(folder_.path() / "file", content);
    return folder_.path() / "file";
  }
  const fs::path& folder() const { return folder_.path(); }

 private:
  test::TemporaryFolder folder_;
};

std::string read(ByteSource& source, size_t count) {
  std::vector<uint8_t> bytes(count);
  source.read(bytes);
  return {bytes.begin(), bytes.end()};
}

TEST_CASE_METHOD(ByteSourceTest, "ByteSource: reads plain and compressed files alike") {
  const std::string content = "0123456789";
  for (const std::string& stored : {content, test::gzip(content)}) {
    ByteSource source(file(stored));
    CHECK(read(source, 3) == "012");
    source.skip(2);
    source.require(5);
    CHECK(read(source, 5) == "56789");
    source.require_end();
  }
}

TEST_CASE_METHOD(ByteSourceTest, "ByteSource: an early end and a late one are told with the numbers") {
  for (const std::string& stored : {std::string("0123"), test::gzip("0123")}) {
    ByteSource source(file(stored));
    CHECK_THROWS_MATCHES(read(source, 5), DataError,
                         MessageMatches(ContainsSubstring("expected 5 bytes or more, got 4")));
    ByteSource again(file(stored));
    again.skip(3);
    CHECK_THROWS_MATCHES(again.require_end(), DataError,
                         MessageMatches(ContainsSubstring("after 3 bytes, but more follows")));
  }
}

TEST_CASE_METHOD(ByteSourceTest, "ByteSource: what a file cannot hold is refused before it is read") {
  ByteSource plain(file("0123"));
  plain.require(4);
  CHECK_THROWS_MATCHES(plain.require(5), DataError, MessageMatches(ContainsSubstring("the file has 4")));
  CHECK_THROWS_AS(plain.require(UINT64_MAX), DataError);
  const std::string packed = test::gzip(std::string(100'000, 'x'));
  ByteSource source(file(packed));
  source.require(100'000);
  CHECK_THROWS_AS(source.require(packed.size() * 1032 + 1), DataError);
}

TEST_CASE_METHOD(ByteSourceTest, "ByteSource: damaged gzip data is refused") {
  std::string packed = test::gzip("some content that is checked");
  packed[packed.size() - 6] ^= 1;  // of the checksum
  CHECK_THROWS_MATCHES(
      [&] {
        ByteSource source(file(packed));
        read(source, 28);
        source.require_end();
      }(),
      DataError, MessageMatches(ContainsSubstring("damaged")));
}

TEST_CASE_METHOD(ByteSourceTest, "ByteSource: folders, pipes and missing files are refused at once") {
  CHECK_THROWS_MATCHES([&] { ByteSource source(folder()); }(), DataError,
                       MessageMatches(ContainsSubstring("got a folder")));
  REQUIRE(::mkfifo((folder() / "pipe").c_str(), 0600) == 0);
  CHECK_THROWS_MATCHES([&] { ByteSource source(folder() / "pipe"); }(), DataError,
                       MessageMatches(ContainsSubstring("got a pipe")));
  CHECK_THROWS_MATCHES([&] { ByteSource source(folder() / "none"); }(), DataError,
                       MessageMatches(ContainsSubstring("No such file")));
  CHECK_THROWS_MATCHES(read_small_file(folder() / "pipe", 10), DataError,
                       MessageMatches(ContainsSubstring("got a pipe")));
}

TEST_CASE_METHOD(ByteSourceTest, "ByteSource: a small file is read whole or refused for its size") {
  CHECK(read_small_file(file("0123"), 4) == "0123");
  CHECK(read_small_file(file(""), 4) == "");
  CHECK_THROWS_MATCHES(read_small_file(file("01234"), 4), DataError,
                       MessageMatches(ContainsSubstring("at most 4 bytes, got 5")));
}

}  // namespace
}  // namespace ddp
