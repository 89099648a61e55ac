// The headers of .npy files, and the directories and members of .npz files. The first byte chooses.
#include <algorithm>
#include <cstring>

#include "data/formats/npy_header.h"
#include "data/formats/zip_archive.h"
#include "tests/data/fuzz/reader.h"

namespace {

constexpr std::uint8_t kZip = 1;

std::string npy_file(const std::vector<int64_t>& shape, bool is_fortran, const std::string& elements) {
  return ddp::npy_header({.kind = 'f', .item_bytes = 4, .is_fortran = is_fortran, .shape = shape}) + elements;
}

std::string zip_file(bool deflate) {
  const auto path = std::filesystem::temp_directory_path() / ("ddprun-fuzz-npy-" + std::to_string(deflate));
  ddp::ReplacedFile file(path);
  ddp::ZipWriter zip(file);
  const std::string array = npy_file({2, 3}, false, std::string(24, 'x'));
  zip.add("x.npy", {array}, deflate);
  zip.add("y.npy", {array, array}, deflate);
  zip.finish();
  file.commit();
  std::string content = ddp::read_small_file(path, 1 << 20);
  std::filesystem::remove(path);
  return content;
}

ddp::NpyHeader header_of(std::string_view bytes, const std::filesystem::path& path) {
  std::size_t position = 0;
  return ddp::read_npy_header(
      [&](std::span<std::uint8_t> out) {
        if (out.size() > bytes.size() - position) throw ddp::DataError(path, "is truncated");
        std::memcpy(out.data(), bytes.data() + position, out.size());
        position += out.size();
      },
      path);
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  return {chosen('\0', npy_file({2, 3}, false, "")), chosen('\0', npy_file({}, true, "")),
          chosen('\0', npy_file({7}, false, "")), chosen('\1', zip_file(false)), chosen('\1', zip_file(true))};
}

std::vector<std::string> fuzz::dictionary() {
  return {"'descr': ", "'fortran_order': ",       "'shape': ", "'<f4'", "'>c16'", "'|O'", "True", "False", "(3,)",
          "()",        "(9223372036854775807, 2)"};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  Input input(bytes);
  const std::uint8_t kind = input.byte();
  const std::string_view content = input.rest();
  const std::filesystem::path path = "array";
  return may_refuse(path, [&] {
    if ((kind & kZip) == 0) {
      const ddp::NpyHeader header = header_of(content, path);
      require(header.item_bytes >= 1 && header.item_bytes <= 16, "elements have a size");
      std::uint64_t count = 1;
      for (const int64_t size : header.shape) count *= static_cast<std::uint64_t>(size);
      require(count == header.count, "the count is the shape's");
      ddp::NpyHeader again = header_of(ddp::npy_header(header), path);
      require(again.shape == header.shape && again.kind == header.kind && again.item_bytes == header.item_bytes,
              "a header that is written says the same");
      return;
    }
    for (const ddp::ZipMember& member : ddp::read_zip_directory(content, path)) {
      require(member.packed.data() >= content.data() &&
                  member.packed.data() + member.packed.size() <= content.data() + content.size(),
              "a member lies in the file");
      ddp::ZipMemberReader reader(member, path);
      std::vector<std::uint8_t> piece(4096);
      for (std::uint64_t left = member.size; left > 0;) {
        const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(left, piece.size()));
        reader.read(std::span(piece).first(size));
        left -= size;
      }
      reader.finish();
    }
  });
}
