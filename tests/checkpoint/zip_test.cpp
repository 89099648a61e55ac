#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "checkpoint/pt/crc32.h"
#include "checkpoint/pt/zip_reader.h"
#include "checkpoint/pt/zip_records.h"
#include "checkpoint/pt/zip_writer.h"
#include "tests/checkpoint/temporary_folder.h"
#include "tests/checkpoint/text_sink.h"

namespace ddp::pt {
namespace {

using test::message_of;
using test::TextSink;
using ::testing::HasSubstr;

std::string example() {
  TextSink sink;
  ZipWriter writer(sink);
  writer.add("archive/data.pkl", "a pickle");
  writer.add("archive/data/0", std::string(200, 'x'));
  writer.add("archive/data/1", "");
  writer.add("archive/version", "3\n");
  writer.finish();
  return sink.text;
}

void read_all(const std::string& file) {
  ZipReader(file).verify();
}

TEST(Zip, EntriesComeBackAlignedToSixtyFourBytes) {
  const auto file = example();
  const ZipReader reader(file);
  reader.verify();
  ASSERT_EQ(reader.entries().size(), 4);
  EXPECT_EQ(reader.find("archive/data.pkl")->data, "a pickle");
  EXPECT_EQ(reader.find("archive/data/0")->data, std::string(200, 'x'));
  EXPECT_EQ(reader.find("archive/data/1")->data, "");
  EXPECT_EQ(reader.find("archive/data/2"), nullptr);
  for (const auto& entry : reader.entries()) EXPECT_EQ((entry.data.data() - file.data()) % 64, 0) << entry.name;
}

TEST(Zip, TheChecksumIsTheUsualOne) {
  EXPECT_EQ(crc32("123456789", 9), 0xcbf43926U);
}

TEST(Zip, EveryChangedByteOfAFileIsNoticed) {
  const auto file = example();
  for (size_t i = 0; i < file.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      auto changed = file;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      EXPECT_THROW(read_all(changed), FormatError) << "bit " << bit << " of byte " << i;
    }
  }
}

TEST(Zip, EveryCutAndEveryExtensionIsNoticed) {
  const auto file = example();
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_THROW(read_all(file.substr(0, size)), FormatError) << size;
    EXPECT_THROW(read_all(file + file.substr(0, size + 1)), FormatError) << size;
    EXPECT_THROW(read_all(file.substr(0, size) + "x" + file.substr(size)), FormatError) << size;
  }
}

TEST(Zip, RandomDamageIsHandled) {
  const auto file = example();
  std::mt19937_64 random(3);
  for (int round = 0; round < 20'000; ++round) {
    auto changed = file;
    for (auto edits = 1 + random() % 4; edits > 0; --edits) {
      const auto at = random() % changed.size();
      switch (random() % 3) {
        case 0:
          changed[at] = static_cast<char>(random());
          break;
        case 1:
          changed.erase(at, 1 + random() % 20);
          break;
        default:
          changed.insert(at, file.substr(random() % file.size(), 1 + random() % 60));
      }
      if (changed.empty()) changed.assign(1, 'P');
    }
    if (changed == file) continue;
    EXPECT_THROW(read_all(changed), FormatError);
  }
}

TEST(Zip, CompressedEncryptedAndRepeatedEntriesAreRefusedByName) {
  auto file = example();
  const auto set = [&](size_t offset, char value) {
    auto changed = file;
    changed[offset] = value;
    const auto directory = changed.find("PK\1\2");
    changed[directory + 2 + offset] = value;
    return message_of([&] { read_all(changed); });
  };
  EXPECT_THAT(set(8, 8), HasSubstr("compressed"));
  EXPECT_THAT(set(6, 1), HasSubstr("encrypted"));
  for (auto at = file.find("data/1"); at != std::string::npos; at = file.find("data/1", at + 1)) file[at + 5] = '0';
  EXPECT_THAT(message_of([&] { read_all(file); }), HasSubstr("two entries named 'archive/data/0'"));
}

// Accepts bytes without keeping them, but for the last ones.
class CountingSink : public storage::ByteSink {
 public:
  void write(const void* data, size_t size) override {
    total += size;
    if (size < 4096) last.append(static_cast<const char*>(data), size);
  }
  uint64_t total = 0;
  std::string last;
};

TEST(Zip, SizesBeyondFourGigabytesAreWrittenAsZip64) {
  CountingSink sink;
  ZipWriter writer(sink);
  const std::string piece(size_t{1} << 20, 'x');
  const uint64_t size = uint64_t{5} << 30;
  writer.add("archive/data/0", size, 0x1234, [&](storage::ByteSink& out) {
    for (uint64_t i = 0; i < size / piece.size(); ++i) out.write(piece.data(), piece.size());
  });
  writer.add("archive/version", "3\n");
  writer.finish();
  const auto end = sink.last.substr(sink.last.size() - zip::kEndBytes - zip::kLocator64Bytes - zip::kEnd64Bytes);
  EXPECT_TRUE(end.starts_with("PK\6\6"));
  uint64_t directory = 0;
  std::memcpy(&directory, end.data() + 48, 8);
  EXPECT_GT(directory, size);
  EXPECT_LT(directory, sink.total);
}

}  // namespace
}  // namespace ddp::pt
