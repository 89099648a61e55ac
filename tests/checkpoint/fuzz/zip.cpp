// The containers of .pt files, and such a file as a whole, as torch.save writes it, packed anew, or of before 1.6. The
// directory is judged without the checksums, so that damage in the entries comes further.
#include <algorithm>
#include <stdexcept>

#include "checkpoint/pt/elements.h"
#include "checkpoint/pt/pt_file.h"
#include "checkpoint/pt/pt_writer.h"
#include "checkpoint/pt/state_dict.h"
#include "checkpoint/pt/zip_reader.h"
#include "checkpoint/pt/zip_writer.h"
#include "tests/checkpoint/legacy_forms.h"
#include "tests/checkpoint/text_sink.h"
#include "tests/checkpoint/zip_forms.h"
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

// What the file's pickle says of its storages may be wrong, and unpacking one may fail; neither may do harm.
void read_tensors(const pt::PtFile& file) {
  constexpr std::uint64_t kMaxCopyBytes = 1 << 20;
  try {
    for (const auto& [name, tensor] : pt::find_state(file.root()).tensors) {
      const std::string_view piece = file.bytes_of(tensor);
      if (pt::gathered_size(tensor) > kMaxCopyBytes) continue;
      require(pt::gather_elements(tensor, piece).size() == pt::gathered_size(tensor), "all elements are there");
    }
  } catch (const pt::FormatError& error) {
    require(*error.what() != '\0', "a refusal says why");
  }
}

// Whether the whole file is right, to the last checksum.
void check_file(std::string_view file) {
  try {
    const pt::PtFile whole(storage::own_bytes(std::string(file)), "weights.pt");
    if (file.starts_with("PK")) pt::ZipReader(file).verify();
    if (whole.root().is(pt::Kind::kDict)) read_tensors(whole);
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

std::string pickle_of(const std::string& file) {
  return std::string(pt::ZipReader(file).find("archive/data.pkl")->data);
}

// As torch.save has it, and as an archiver packs it anew.
std::string torch_file(const std::string& pickle, bool has_checksums) {
  test::TextSink sink;
  test::TorchZip zip(sink, has_checksums);
  zip.add("archive/data.pkl", pickle);
  zip.add("archive/data/0", std::string(24, 'w'));
  zip.finish();
  return sink.text;
}

std::vector<test::ArchiveEntry> packed(const std::string& pickle) {
  const std::string weight(24, 'w');
  return {{.name = "archive/"},
          {.name = "archive/data.pkl", .data = pickle, .deflated = test::deflate_block(pickle), .has_descriptor = true},
          {.name = "archive/data/0", .data = weight, .deflated = test::deflate_block(weight)}};
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  const std::string pickle = pickle_of(pt_file());
  return {plain_zip(),
          pt_file(),
          torch_file(pickle, true),
          torch_file(pickle, false),
          test::archive(packed(pickle)),
          test::archive(packed(pickle), true, "a comment"),
          test::legacy_file()};
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
