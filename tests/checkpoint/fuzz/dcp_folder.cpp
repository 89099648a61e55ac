// Folders of torch.distributed.checkpoint: a .metadata and, after a line, the file of rank 0 (a right one where there
// is no such line).
#include "checkpoint/dcp/dcp_folder.h"

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "checkpoint/dcp/dcp_writer.h"
#include "checkpoint/dcp/metadata.h"
#include "checkpoint/pt/dtypes.h"
#include "checkpoint/pt/tensor_item.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace ddp;
using fuzz::require;

constexpr std::string_view kLine = "\n--- __0_0.distcp ---\n";
constexpr const char* kDataFile = "__0_0.distcp";

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

dcp::DcpContents model() {
  using dcp::DcpPlace;
  dcp::DcpContents run;
  run.tensors = {
      {{.path = {"model", "fc.weight"}, .dtype = "float32", .shape = {4, 3}},
       {DcpPlace{.box = {.offsets = {0, 0}, .sizes = {2, 3}}}, DcpPlace{.box = {.offsets = {2, 0}, .sizes = {2, 3}}},
        DcpPlace{.box = {.offsets = {4, 0}, .sizes = {0, 3}}}}},
      {{.path = {"model", "scale"}, .dtype = "bfloat16", .shape = {}}, {DcpPlace{}}},
      {{.path = {"optim", "state", "fc.weight", "exp_avg"}, .dtype = "float32", .shape = {4, 3}},
       {DcpPlace{.box = {.offsets = {0, 0}, .sizes = {4, 3}}}}}};
  run.values = {{{"optim", "param_groups"}, R"([{"lr": 0.1, "betas": [0.9, 0.99], "params": ["fc.weight"]}])"},
                {{"scheduler"}, R"({"last_epoch": 3, "_last_lr": [0.1]})"},
                {{"epoch"}, "3"}};
  return run;
}

dcp::DcpContents flattened() {
  dcp::DcpContents run;
  run.tensors = {
      {{.path = {"w"}, .dtype = "int64", .shape = {2}}, {dcp::DcpPlace{.box = {.offsets = {0}, .sizes = {2}}}}},
      {{.path = {"optimizer_g", "state.w.step"}, .dtype = "float32", .shape = {}}, {dcp::DcpPlace{}}}};
  run.values = {{{"optimizer_g", "param_groups.w.lr"}, "0.5"}, {{"scaler"}, R"({"scale": 2.0})"}};
  return run;
}

std::string folder_of(const dcp::DcpContents& run, std::string* data = nullptr) {
  const test::TemporaryFolder folder;
  storage::FileSystem file_system;
  const auto elements = [&](std::size_t i, std::size_t j, storage::ByteSink& sink) {
    const auto& [tensor, places] = run.tensors[i];
    const std::string bytes(
        static_cast<std::size_t>(shards::numel(places[j].box)) * pt::dtype_by_name(tensor.dtype)->bytes, 'e');
    sink.write(bytes.data(), bytes.size());
  };
  dcp::write_dcp_folder(file_system, folder.path(), run, elements);
  if (data != nullptr) *data = contents(folder / kDataFile);
  return contents(folder / ".metadata") + std::string(kLine) + contents(folder / kDataFile);
}

// The one folder for all inputs.
class Folder {
 public:
  Folder() { folder_of(model(), &data_); }

  void put(std::string_view input) {
    const std::size_t line = input.rfind(kLine);
    const bool has_data = line != std::string_view::npos;
    write(folder_ / ".metadata", input.substr(0, line));
    if (has_data || !is_right_) write(folder_ / kDataFile, has_data ? input.substr(line + kLine.size()) : data_);
    is_right_ = !has_data;
  }

  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  test::TemporaryFolder folder_;
  std::string data_;
  bool is_right_ = false;
};

// What the catalog says of an item may be wrong; reading it must do no harm.
void read_chunk(const shards::TensorCatalog& catalog, const shards::CatalogTensor& tensor, const shards::Chunk& chunk) {
  storage::FileSystem file_system;
  const std::filesystem::path& path = catalog.files.at(chunk.file);
  const storage::FileDescriptor file = file_system.open(path);
  const std::uint64_t bytes = file_system.size(file, path);
  require(chunk.begin <= bytes && chunk.size <= bytes - chunk.begin, "a chunk lies in its file");
  if (chunk.form == shards::ChunkForm::kElements) return;
  const pt::TensorItem item{.begin = chunk.begin, .size = chunk.size, .dtype = tensor.dtype, .sizes = chunk.box.sizes};
  try {
    const pt::ElementPlace place = pt::find_elements(file_system, file, path, item);
    require(place.storage_begin >= item.begin && place.storage_size <= item.size &&
                place.storage_begin - item.begin <= item.size - place.storage_size,
            "a storage lies in its item");
    const std::string elements = pt::read_tensor_item(file_system, file, path, item);
    require(
        elements.size() == static_cast<std::size_t>(shards::numel(chunk.box)) * pt::dtype_by_name(tensor.dtype)->bytes,
        "all elements are there");
    if (!place.is_row_major || place.is_deflated) return;
    std::string range(place.size, '\0');
    file_system.read(file, range.data(), range.size(), place.begin, path);
    require(range == elements, "parts of an item have the bytes of the whole");
  } catch (const pt::FormatError& error) {
    require(*error.what() != '\0', "a refusal says why");
  }
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  const std::string whole = folder_of(model());
  return {whole, whole.substr(0, whole.find(kLine)), folder_of(flattened())};
}

std::vector<std::string> fuzz::dictionary() {
  return {"torch\nSize\n",
          "posix\nsystem\n",
          "pathlib\nPosixPath\n",
          "transform_descriptors",
          "relative_path",
          "../x",
          "K\xff",
          "J\xff\xff\xff\xff",
          "J\xff\xff\xff\x7f",
          "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f",
          "h\1",
          "param_groups.0.lr"};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  static Folder folder;
  folder.put(bytes);
  storage::FileSystem file_system;
  try {
    shards::ShardedRun run = dcp::read_dcp_folder(file_system, folder.path());
    for (auto& [name, catalog] : run.parts) {
      shards::check(catalog);
      for (const auto& [title, tensor] : catalog.tensors) {
        for (const shards::Chunk& chunk : tensor.chunks) read_chunk(catalog, tensor, chunk);
      }
    }
    return Outcome::kAccepted;
  } catch (const std::runtime_error& error) {
    require(std::string_view(error.what()).starts_with(folder.path().string()), "a refusal names the folder");
    return Outcome::kRefused;
  }
}
