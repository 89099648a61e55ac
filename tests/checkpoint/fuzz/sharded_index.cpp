// Indexes of models in several files, as text; and as files beside a shard, where the tool opens them.
#include "checkpoint/core/sharded_index.h"

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "checkpoint/tool/tensor_source.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/temporary_folder.h"

namespace {

using fuzz::require;

constexpr const char* kIndex = "model.safetensors.index.json";

std::string index_of(const std::string& file) {
  return R"({"metadata":{"total_size":4},"weight_map":{"a":")" + file + R"("}})";
}

void write(const std::filesystem::path& path, std::string_view content) {
  std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
}

// The index beside a file with the tensor `a`, an index that names itself, and a folder with another.
class Model {
 public:
  Model() {
    ddp::safetensors::Header header;
    header.tensors = {{.name = "a", .dtype = ddp::safetensors::DType::kF32, .shape = {1}}};
    ddp::safetensors::assign_ranges(header.tensors);
    write(folder_ / "a.safetensors", ddp::safetensors::format_header(header) + "1234");
    write(folder_ / "b.index.json", index_of("b.index.json"));
    std::filesystem::create_directory(folder_ / "below");
    write(folder_ / "below" / kIndex, index_of("a.safetensors"));
  }

  void open(std::string_view index) {
    write(folder_ / kIndex, index);
    const ddp::tool::TensorSource source(folder_.path());
    require(source.files().at("").tensors.size() == 1, "an index has the tensors that it names");
  }

 private:
  ddp::test::TemporaryFolder folder_;
};

}  // namespace

std::vector<std::string> fuzz::seeds() {
  return {index_of("a.safetensors"),
          index_of(kIndex),
          index_of("b.index.json"),
          index_of("below"),
          index_of("below/model.safetensors.index.json"),
          index_of("absent.safetensors"),
          R"({"weight_map":{"":"..a","b":"below/a.bin"},"x":[[],{},1e9,null,"A\ud800"]})",
          R"(xx{}[]:,"" ../ / ./ .index.json \\ \u0000 weight_map)"};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  static Model model;  // one folder for all inputs
  try {
    const ddp::ShardedIndex index = ddp::parse_sharded_index(bytes);
    require(!index.empty(), "an index names a file");
    for (const auto& [file, names] : index) {
      const std::filesystem::path path(file);
      require(!names.empty(), "a file is named for a tensor");
      require(path.is_relative(), "a file is below the index's folder");
      for (const auto& part : path) require(part != "..", "a file is below the index's folder");
      require(!ddp::is_sharded_index(path), "no file is an index itself");
    }
  } catch (const std::invalid_argument& error) {
    require(*error.what() != '\0', "a refusal says why");
    return Outcome::kRefused;
  }
  try {
    model.open(bytes);
  } catch (const std::runtime_error& error) {
    require(*error.what() != '\0', "a refusal says why");
  }
  return Outcome::kAccepted;
}
