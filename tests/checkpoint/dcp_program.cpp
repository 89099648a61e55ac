// Reads and writes folders of torch.distributed.checkpoint for dcp_interop_test.py, without LibTorch:
//   list FOLDER                prints what is in it as JSON
//   dump FOLDER FILE [SEED]    writes every tensor's elements into FILE, and prints where; with a seed a box of each
//   write SPEC BLOB FOLDER     writes a folder of the tensors in BLOB, as SPEC (JSON) says
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "checkpoint/dcp/dcp_folder.h"
#include "checkpoint/dcp/dcp_writer.h"
#include "checkpoint/pt/dtypes.h"
#include "checkpoint/pt/elements.h"
#include "checkpoint/pt/tensor_item.h"

namespace {

using namespace ddp;
using nlohmann::json;

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Copies what a chunk has of `wanted`: byte ranges where its elements lie one after the other.
void copy_chunk(storage::FileSystem& file_system, const shards::TensorCatalog& catalog,
                const shards::CatalogTensor& tensor, const shards::Chunk& chunk, const shards::Box& wanted,
                std::string& target) {
  const auto part = shards::common_part(chunk.box, wanted);
  if (!part) return;
  const auto element = static_cast<int64_t>(pt::dtype_by_name(tensor.dtype)->bytes);
  const auto& path = catalog.files.at(chunk.file);
  const auto file = file_system.open(path);
  std::string whole;
  std::uint64_t begin = chunk.begin;
  if (chunk.form == shards::ChunkForm::kTorchSave) {
    const pt::TensorItem item{
        .begin = chunk.begin, .size = chunk.size, .dtype = tensor.dtype, .sizes = chunk.box.sizes};
    const auto place = pt::find_elements(file_system, file, path, item);
    begin = place.begin;
    const auto read = pt::read_tensor_item(file_system, file, path, item);
    if (!place.is_row_major || place.is_deflated) {
      whole = read;
    } else {
      std::string range(place.size, '\0');
      file_system.read(file, range.data(), range.size(), place.begin, path);
      if (range != read) throw std::runtime_error("an item has other bytes in parts than whole");
    }
  }
  const shards::Runs runs(*part, chunk.box, wanted);
  for (int64_t i = 0; i < runs.size(); ++i) {
    const auto run = runs[i];
    auto* to = target.data() + run.to * element;
    const auto bytes = static_cast<std::size_t>(run.count * element);
    if (whole.empty()) {
      file_system.read(file, to, bytes, begin + static_cast<std::uint64_t>(run.from * element), path);
    } else {
      std::copy_n(whole.data() + run.from * element, bytes, to);
    }
  }
}

json described(const shards::ShardedRun& run) {
  json parts = json::object();
  for (const auto& [name, catalog] : run.parts) {
    json tensors = json::object();
    for (const auto& [tensor, found] : catalog.tensors) {
      tensors[tensor] = {{"dtype", found.dtype}, {"shape", found.shape}, {"chunks", found.chunks.size()}};
    }
    parts[name] = {{"tensors", tensors}, {"metadata", catalog.metadata}};
  }
  return {{"parts", parts}, {"texts", run.texts}, {"skipped", run.skipped}};
}

json dump_folder(const std::string& folder, const std::string& target, const std::string& seed) {
  storage::FileSystem file_system;
  const auto run = dcp::read_dcp_folder(file_system, folder);
  std::mt19937 random(seed.empty() ? 0U : static_cast<unsigned>(std::stoul(seed)));
  std::ofstream out(target, std::ios::binary);
  std::uint64_t position = 0;
  json places = json::object();
  for (const auto& [name, catalog] : run.parts) {
    for (const auto& [title, tensor] : catalog.tensors) {
      auto box = shards::whole(tensor.shape);
      for (std::size_t i = 0; i < box.sizes.size() && !seed.empty(); ++i) {
        const auto begin = static_cast<int64_t>(random() % static_cast<unsigned>(tensor.shape[i] + 1));
        box.offsets[i] = begin;
        box.sizes[i] = static_cast<int64_t>(random() % static_cast<unsigned>(tensor.shape[i] - begin + 1));
      }
      std::string bytes(static_cast<std::size_t>(shards::numel(box)) * pt::dtype_by_name(tensor.dtype)->bytes, '\0');
      for (const auto& chunk : tensor.chunks) copy_chunk(file_system, catalog, tensor, chunk, box, bytes);
      out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
      places[name][title] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"offsets", box.offsets},
                             {"sizes", box.sizes},    {"begin", position},     {"size", bytes.size()}};
      position += bytes.size();
    }
  }
  return places;
}

dcp::Path path_of(const json& parts) {
  dcp::Path path;
  for (const auto& part : parts) {
    if (part.is_string()) {
      path.emplace_back(part.get<std::string>());
    } else {
      path.emplace_back(part.get<int64_t>());
    }
  }
  return path;
}

// {"tensors": [{"path", "dtype", "shape", "begin", "places": [{"rank", "offsets", "sizes"}]}], "values": [[path,
// value]]}
void write_folder(const json& spec, const std::string& blob, const std::string& folder) {
  dcp::DcpContents contents;
  std::vector<std::uint64_t> begins;
  for (const auto& each : spec.at("tensors")) {
    auto& [tensor, places] = contents.tensors.emplace_back();
    tensor = {.path = path_of(each.at("path")), .dtype = each.at("dtype"), .shape = each.at("shape")};
    for (const auto& place : each.at("places")) {
      places.push_back({.rank = place.at("rank"),
                        .box = {.offsets = place.at("offsets").get<std::vector<int64_t>>(),
                                .sizes = place.at("sizes").get<std::vector<int64_t>>()}});
    }
    begins.push_back(each.at("begin"));
  }
  for (const auto& each : spec.at("values")) contents.values.emplace_back(path_of(each[0]), each[1].dump());
  storage::FileSystem file_system;
  file_system.make_folder(folder);
  dcp::write_dcp_folder(file_system, folder, contents, [&](std::size_t i, std::size_t j, storage::ByteSink& sink) {
    const auto& [tensor, places] = contents.tensors[i];
    const auto element = static_cast<int64_t>(pt::dtype_by_name(tensor.dtype)->bytes);
    const auto& box = places[j].box;
    if (shards::numel(box) == 0) return;
    const shards::Runs runs(box, shards::whole(tensor.shape), box);
    for (int64_t k = 0; k < runs.size(); ++k) {
      sink.write(blob.data() + begins[i] + runs[k].from * element, static_cast<std::size_t>(runs[k].count * element));
    }
  });
}

}  // namespace

int main(int count, char** values) {
  const std::vector<std::string> arguments(values + 1, values + count);
  try {
    if (arguments.size() == 2 && arguments[0] == "list") {
      storage::FileSystem file_system;
      std::puts(described(dcp::read_dcp_folder(file_system, arguments[1])).dump().c_str());
    } else if (arguments.size() >= 3 && arguments[0] == "dump") {
      std::puts(dump_folder(arguments[1], arguments[2], arguments.size() > 3 ? arguments[3] : "").dump().c_str());
    } else if (arguments.size() == 4 && arguments[0] == "write") {
      write_folder(json::parse(contents(arguments[1])), contents(arguments[2]), arguments[3]);
    } else {
      std::fputs("usage: list FOLDER | dump FOLDER FILE [SEED] | write SPEC BLOB FOLDER\n", stderr);
      return 2;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
