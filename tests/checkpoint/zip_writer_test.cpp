// Zip files of any number and size of entries, and sinks that fail.
#include "checkpoint/pt/zip_writer.h"

#include <cerrno>
#include <string>
#include <system_error>

#include "checkpoint/pt/crc32.h"
#include "checkpoint/pt/zip_reader.h"
#include "tests/checkpoint/text_sink.h"
#include "tests/support/catch.h"

namespace ddp::pt {
namespace {

// A field of 16 bits counts the entries; from 65535 on it says to look elsewhere.
TEST_CASE("ZipWriter: as many entries as one likes come back") {
  for (const int count : {1, 65'534, 65'535, 65'536, 65'600}) {
    INFO(count);
    test::TextSink sink;
    ZipWriter writer(sink);
    for (int i = 0; i < count; ++i) writer.add("a/" + std::to_string(i), i % 2 == 0 ? "x" : "");
    writer.finish();
    const ZipReader reader(sink.text);
    reader.verify();
    CHECK(reader.entries().size() == static_cast<size_t>(count));
    CHECK(reader.find("a/" + std::to_string(count - 1)) != nullptr);
  }
}

TEST_CASE("ZipWriter: names of any bytes and lengths keep the data aligned") {
  test::TextSink sink;
  ZipWriter writer(sink);
  std::string name;
  for (int length = 1; length < 200; ++length) {
    name += static_cast<char>('a' + length % 26);
    writer.add(name, name);
  }
  writer.add("\xc3\xa4/\xf0\x9f\x9a\x80", "not ASCII");
  writer.finish();
  const ZipReader reader(sink.text);
  reader.verify();
  for (const auto& entry : reader.entries()) {
    INFO(entry.name);
    CHECK((entry.data.data() - sink.text.data()) % 64 == 0);
  }
  CHECK(reader.find(name)->data == name);
  CHECK(reader.find("\xc3\xa4/\xf0\x9f\x9a\x80")->data == "not ASCII");
}

TEST_CASE("ZipWriter: data that comes in pieces is what the checksum says, or the reader notices") {
  const std::string data = "in several pieces";
  const auto write = [&](size_t size, uint32_t checksum) {
    test::TextSink sink;
    ZipWriter writer(sink);
    writer.add("a", size, checksum, [&](storage::ByteSink& out) {
      for (const char& byte : data) out.write(&byte, 1);
    });
    writer.finish();
    const ZipReader reader(sink.text);
    reader.verify();
    return std::string(reader.find("a")->data);
  };
  const auto checksum = crc32(data.data(), data.size());
  CHECK(write(data.size(), checksum) == data);
  CHECK_THROWS_AS(write(data.size(), checksum ^ 1), FormatError);
  CHECK_THROWS_AS(write(data.size() - 1, checksum), FormatError);
  CHECK_THROWS_AS(write(data.size() + 1, checksum), FormatError);
}

TEST_CASE("ZipWriter: an entry whose checksum follows its data is read as any other") {
  test::TextSink sink;
  ZipWriter writer(sink);
  writer.add("a/data.pkl", "pickle");
  writer.add_stream("a/data/0", 6, [](storage::ByteSink& target) {
    target.write("abc", 3);
    target.write("def", 3);
  });
  writer.add("a/version", "3\n");
  CHECK_THROWS_AS(writer.add_stream("a/data/1", 6, [](storage::ByteSink& target) { target.write("abc", 3); }),
                  std::length_error);
  test::TextSink whole;
  ZipWriter again(whole);
  again.add_stream("a/data/0", 3, [](storage::ByteSink& target) { target.write("abc", 3); });
  again.add_stream("a/empty", 0, [](storage::ByteSink&) {});
  again.finish();
  const ZipReader reader(whole.text);
  reader.verify();
  CHECK(reader.find("a/data/0")->data == "abc");
  CHECK(reader.find("a/data/0")->crc32 == crc32("abc", 3));
  CHECK(reader.find("a/data/0")->data.data() - whole.text.data() == 64);
}

// Has room for so many bytes.
class SmallSink : public storage::ByteSink {
 public:
  explicit SmallSink(size_t room) : room_(room) {}
  void write(const void*, size_t size) override {
    if (size > room_) throw std::system_error(ENOSPC, std::generic_category(), "full");
    room_ -= size;
  }
  size_t room() const { return room_; }

 private:
  size_t room_;
};

TEST_CASE("ZipWriter: a disk that is full at any byte is an error and never a file that looks whole") {
  const auto write = [](storage::ByteSink& sink) {
    ZipWriter writer(sink);
    writer.add("a/data.pkl", "pickle");
    writer.add("a/data/0", std::string(100, 'x'));
    writer.finish();
  };
  test::TextSink whole;
  write(whole);
  for (size_t room = 0; room < whole.text.size(); ++room) {
    SmallSink sink(room);
    CHECK_THROWS_AS(write(sink), std::system_error);
  }
  SmallSink enough(whole.text.size());
  write(enough);
  CHECK(enough.room() == 0);
}

}  // namespace
}  // namespace ddp::pt
