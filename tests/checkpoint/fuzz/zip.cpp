// The container of .pt files, and such a file as a whole. The directory is judged without the checksums, so that damage
// in the entries comes further.
#include <algorithm>
#include <stdexcept>

#include "checkpoint/pt/pt_file.h"
#include "checkpoint/pt/pt_writer.h"
#include "checkpoint/pt/zip_writer.h"
#include "tests/checkpoint/text_sink.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace ddp;
using fuzz::require;

void check_entries(const pt::ZipReader& zip, std::string_view file) {
  std::vector<std::string_view> pieces;
  for (const pt::ZipEntry& entry : zip.entries()) {
    const pt::ZipEntry* found = zip.find(entry.name);
    require(found != nullptr && found->data.data() == entry.data.data(), "names are unique");
    require(entry.data.data() >= file.data() && entry.data.data() + entry.data.size() <= file.data() + file.size(),
            "an entry lies within the file");
    pieces.push_back(entry.data);
  }
  std::sort(pieces.begin(), pieces.end(), [](auto left, auto right) { return left.data() < right.data(); });
  for (std::size_t i = 1; i < pieces.size(); ++i)
    require(pieces[i - 1].data() + pieces[i - 1].size() <= pieces[i].data(), "entries do not overlap");
}

// Whether the whole file is right, to the last checksum.
void check_file(std::string_view file) {
  try {
    const pt::PtFile whole(storage::own_bytes(std::string(file)), "weights.pt");
    pt::ZipReader(file).verify();
  } catch (const pt::FormatError&) {
    require(false, "a file that was read has the right checksums");
  } catch (const std::runtime_error& error) {
    require(std::string_view(error.what()).starts_with("weights.pt"), "the error names the file");
  }
}

std::string plain_zip() {
  test::TextSink sink;
  pt::ZipWriter writer(sink);
  writer.add("archive/data/0", std::string(20, 'x'));
  writer.add("archive/data/1", "");
  writer.add("archive/version", "3\n");
  writer.finish();
  return sink.text;
}

std::string pt_file() {
  const std::string weight(24, 'w');
  test::TextSink sink;
  pt::write_pt(sink, {.model = {{.name = "fc.weight", .dtype = "float32", .sizes = {3, 2}, .bytes = weight}}});
  return sink.text;
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  return {plain_zip(), pt_file()};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  const std::string file(bytes);
  check_file(file);
  try {
    const pt::ZipReader zip(file);
    check_entries(zip, file);
    return Outcome::kAccepted;
  } catch (const pt::FormatError& error) {
    require(*error.what() != '\0', "a refusal says why");
    return Outcome::kRefused;
  }
}
