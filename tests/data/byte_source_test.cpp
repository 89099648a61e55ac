// Reading plain and gzip files with every length checked.
#include "data/byte_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "data/error.h"
#include "tests/data/files.h"
#include "tests/data/gzip.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class ByteSourceTest : public ::testing::Test {
 protected:
  fs::path file(const std::string& content) const {
    testing::write_file(folder_.path() / "file", content);
    return folder_.path() / "file";
  }
  const fs::path& folder() const { return folder_.path(); }

 private:
  testing::TemporaryFolder folder_;
};

std::string read(ByteSource& source, size_t count) {
  std::vector<uint8_t> bytes(count);
  source.read(bytes);
  return {bytes.begin(), bytes.end()};
}

TEST_F(ByteSourceTest, reads_plain_and_compressed_files_alike) {
  const std::string content = "0123456789";
  for (const std::string& stored : {content, testing::gzip(content)}) {
    ByteSource source(file(stored));
    EXPECT_EQ(read(source, 3), "012");
    source.skip(2);
    source.require(5);
    EXPECT_EQ(read(source, 5), "56789");
    source.require_end();
  }
}

TEST_F(ByteSourceTest, an_early_end_and_a_late_one_are_told_with_the_numbers) {
  for (const std::string& stored : {std::string("0123"), testing::gzip("0123")}) {
    ByteSource source(file(stored));
    EXPECT_THAT([&] { read(source, 5); }, ThrowsMessage<DataError>(HasSubstr("expected 5 bytes or more, got 4")));
    ByteSource again(file(stored));
    again.skip(3);
    EXPECT_THAT([&] { again.require_end(); }, ThrowsMessage<DataError>(HasSubstr("after 3 bytes, but more follows")));
  }
}

TEST_F(ByteSourceTest, what_a_file_cannot_hold_is_refused_before_it_is_read) {
  ByteSource plain(file("0123"));
  plain.require(4);
  EXPECT_THAT([&] { plain.require(5); }, ThrowsMessage<DataError>(HasSubstr("the file has 4")));
  EXPECT_THROW(plain.require(UINT64_MAX), DataError);
  const std::string packed = testing::gzip(std::string(100'000, 'x'));
  ByteSource source(file(packed));
  source.require(100'000);
  EXPECT_THROW(source.require(packed.size() * 1032 + 1), DataError);
}

TEST_F(ByteSourceTest, damaged_gzip_data_is_refused) {
  std::string packed = testing::gzip("some content that is checked");
  packed[packed.size() - 6] ^= 1;  // of the checksum
  EXPECT_THAT(
      [&] {
        ByteSource source(file(packed));
        read(source, 28);
        source.require_end();
      },
      ThrowsMessage<DataError>(HasSubstr("damaged")));
}

TEST_F(ByteSourceTest, folders_pipes_and_missing_files_are_refused_at_once) {
  EXPECT_THAT([&] { ByteSource source(folder()); }, ThrowsMessage<DataError>(HasSubstr("got a folder")));
  ASSERT_EQ(::mkfifo((folder() / "pipe").c_str(), 0600), 0);
  EXPECT_THAT([&] { ByteSource source(folder() / "pipe"); }, ThrowsMessage<DataError>(HasSubstr("got a pipe")));
  EXPECT_THAT([&] { ByteSource source(folder() / "none"); }, ThrowsMessage<DataError>(HasSubstr("No such file")));
  EXPECT_THAT([&] { read_small_file(folder() / "pipe", 10); }, ThrowsMessage<DataError>(HasSubstr("got a pipe")));
}

TEST_F(ByteSourceTest, a_small_file_is_read_whole_or_refused_for_its_size) {
  EXPECT_EQ(read_small_file(file("0123"), 4), "0123");
  EXPECT_EQ(read_small_file(file(""), 4), "");
  EXPECT_THAT([&] { read_small_file(file("01234"), 4); },
              ThrowsMessage<DataError>(HasSubstr("at most 4 bytes, got 5")));
}

}  // namespace
}  // namespace ddp
