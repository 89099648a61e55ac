// Archives of samples, plain and gzip-compressed, and indexes of archives. The first byte chooses.
#include "data/formats/shard_format.h"
#include "tests/data/fuzz/reader.h"
#include "tests/data/gzip.h"
#include "tests/fuzz/memory_file.h"

namespace {

constexpr std::uint8_t kIndex = 1;
constexpr std::uint8_t kCompress = 2;
constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 20;

std::string file(const std::string& name, const std::string& content) {
  return ddp::tar_header(name, content.size()) + content + ddp::tar_padding(content.size());
}

std::string with_type(std::string header, char type) {
  header[156] = type;
  header.replace(148, 8, 8, ' ');
  unsigned sum = 0;
  for (std::size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(header[i]);
  char digits[16];
  std::snprintf(digits, sizeof digits, "%06o", sum);
  return header.replace(148, 7, digits, 7);
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  const std::string end(1024, '\0');
  const std::string sample = file("a/0001.jpg", std::string(700, 'x')) + file("a/0001.cls", "7");
  const std::string long_name = file(std::string(150, 'k').append(".txt"), "text");
  const std::string records = "30 path=folder/other.name.txt\n";
  const std::string pax = with_type(file("pax", records), 'x') + file("short.txt", "text");
  return {chosen('\0', sample + end),
          chosen('\0', sample + long_name + file("b.png", "") + end),
          chosen('\0', pax + end),
          chosen('\0', with_type(file("folder/", ""), '5') + with_type(ddp::tar_header("link", 0), '2') + sample),
          chosen('\2', sample + end),
          chosen('\1', "ddprun-shard-index 1 4096 2\n0\n1536\n")};
}

std::vector<std::string> fuzz::dictionary() {
  return {"ustar", "path=", "size=", std::string("\x80\0\0\0", 4), "77777777777", "GNU.sparse."};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  Input input(bytes);
  const std::uint8_t kind = input.byte();
  const std::string content(input.rest());
  if ((kind & kIndex) != 0) {
    return may_refuse("index", [&] {
      const ddp::ShardIndex index = ddp::parse_shard_index(content, "index");
      for (const std::uint64_t header : index.headers)
        require(header < index.archive_bytes, "a place is in the archive");
    });
  }
  const MemoryFile archive((kind & kCompress) != 0 ? ddp::test::gzip(content) : content);
  return may_refuse(archive.path(), [&] {
    ddp::ShardReader reader(archive.path(), kMaxFileBytes);
    std::size_t total = 0;
    while (const auto sample = reader.next(true)) {
      require(!sample->key.empty() && !sample->files.empty(), "a sample has a key and files");
      for (const auto& part : sample->files) total += part.content.size();
      require(total <= content.size(), "no byte is given twice");
    }
    require(!reader.next(true), "the end stays the end");
  });
}
