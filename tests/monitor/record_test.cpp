#include "monitor/wire/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/monitor/files.h"

namespace ddp::wire {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Record, is_length_checksum_payload_checksum) {
  std::string record;
  append_record(record, "123456789");
  EXPECT_EQ(record.size(), 9 + kRecordOverhead);
  EXPECT_EQ(record.substr(0, 8), std::string("\x09\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, 9), "123456789");
  // masked(0xE3069283) = rotr15 + 0xA282EAD8 = 0xC78AB0E5
  EXPECT_EQ(record.substr(21), "\xE5\xB0\x8A\xC7");
}

TEST(Record, reads_back_every_payload_and_stops_before_one_that_is_not_whole) {
  const testing::TemporaryFolder folder;
  const fs::path file = folder.path() / "records";
  const std::vector<std::string> payloads = {"", "a", std::string(100'000, 'x'), std::string("\0\xFF", 2)};
  std::string content;
  for (const std::string& payload : payloads) append_record(content, payload);
  testing::write_file(file, content);
  EXPECT_EQ(testing::records_of(file), payloads);
  for (size_t cut = 1; cut < 18; ++cut) {
    testing::write_file(file, content.substr(0, content.size() - cut));
    EXPECT_EQ(testing::records_of(file).size(), 3U) << cut << " bytes missing";
  }
  testing::write_file(file, content + "torn");
  RecordReader reader(file);
  while (reader.next()) {
  }
  EXPECT_EQ(reader.incomplete_bytes(), 4U);
}

TEST(Record, damage_is_named_with_file_and_place) {
  const testing::TemporaryFolder folder;
  const fs::path file = folder.path() / "records";
  std::string content;
  append_record(content, "first");
  append_record(content, "second");
  std::string damaged = content;
  damaged[21 + 12] ^= 1;
  testing::write_file(file, damaged);
  EXPECT_THAT([&] { testing::records_of(file); },
              ThrowsMessage<std::runtime_error>(HasSubstr(file.string() + ": record at byte 21")));
  damaged = content;
  damaged[0] ^= 1;
  testing::write_file(file, damaged);
  EXPECT_THAT([&] { testing::records_of(file); },
              ThrowsMessage<std::runtime_error>(HasSubstr("checksum of the length")));
}

TEST(Record, a_length_with_a_right_checksum_that_exceeds_the_file_allocates_nothing) {
  const testing::TemporaryFolder folder;
  std::string content;
  append_record(content, "");
  // 2^62 bytes, with the checksum that belongs to it.
  const std::string length = std::string("\0\0\0\0\0\0\0\x40", 8);
  std::string framed;
  append_record(framed, length);
  content += length + framed.substr(framed.size() - 4) + "abcdefgh";
  testing::write_file(folder.path() / "records", content);
  EXPECT_EQ(testing::records_of(folder.path() / "records").size(), 1U);
}

TEST(Record, a_folder_or_a_missing_file_is_refused) {
  const testing::TemporaryFolder folder;
  EXPECT_THROW(RecordReader(folder.path()), std::runtime_error);
  EXPECT_THROW(RecordReader(folder.path() / "none"), std::runtime_error);
}

}  // namespace
}  // namespace ddp::wire
