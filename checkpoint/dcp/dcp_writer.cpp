#include "checkpoint/dcp/dcp_writer.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include <ddprun/checkpoint/safetensors_header.h>

#include "base/json_float.h"
#include "checkpoint/core/shallow_json.h"
#include "checkpoint/pt/dtypes.h"
#include "checkpoint/pt/json_pickle.h"
#include "checkpoint/pt/pickler.h"
#include "checkpoint/pt/zip_writer.h"

namespace ddp::dcp {
namespace {

using nlohmann::json;

// Counts what passes.
class Output : public storage::ByteSink {
 public:
  explicit Output(storage::DurableFile file) : file_(std::move(file)) {}

  void write(const void* data, size_t size) override {
    file_.write(data, size);
    position_ += size;
  }

  uint64_t position() const { return position_; }
  storage::FileRecord finish() { return file_.finish(); }

 private:
  storage::DurableFile file_;
  uint64_t position_ = 0;
};

// Whether Python keeps the value in one item: a list that holds objects, at any depth, is taken apart.
bool is_terminal(const json& value) {
  if (value.is_object()) return named_float(value).has_value();
  if (!value.is_array()) return true;
  return std::ranges::all_of(value, [](const json& item) { return item.is_primitive() || is_terminal(item); });
}

template <typename Use>
void for_each_item(const Path& path, const json& value, const Use& use) {
  if (is_terminal(value)) return use(path, value);
  auto below = path;
  if (value.is_object()) {
    for (const auto& [key, item] : value.items()) {
      below.emplace_back(key);
      for_each_item(below, item, use);
      below.pop_back();
    }
    return;
  }
  for (size_t i = 0; i < value.size(); ++i) {
    below.emplace_back(static_cast<int64_t>(i));
    for_each_item(below, value[i], use);
    below.pop_back();
  }
}

std::string pickled(const Path& path, const json& value) {
  pt::Pickler pickler;
  const auto* key = key_at(path, path.size() - 1);
  if (key != nullptr && *key == "betas" && value.is_array()) {
    pickler.begin_tuple();
    for (const auto& item : value) pt::pickle_json(pickler, item);
    pickler.end_tuple();
  } else {
    pt::pickle_json(pickler, value);
  }
  return pickler.take();
}

// The elements of a chunk as they will be in the archive, in row-major order.
pt::TensorEntry entry_of(const DcpTensor& tensor, const shards::Box& box) {
  pt::TensorEntry entry{.storage = "0", .dtype = tensor.dtype, .sizes = box.sizes};
  entry.strides.resize(box.sizes.size());
  int64_t stride = 1;
  for (size_t i = box.sizes.size(); i-- > 0;) {
    entry.strides[i] = stride;
    stride *= std::max<int64_t>(box.sizes[i], 1);
  }
  return entry;
}

void check_tensor(const DcpTensor& tensor, const shards::Box& box) {
  if (pt::dtype_by_name(tensor.dtype) == nullptr) {
    throw std::invalid_argument("cannot save " + safetensors::quote_name(flat_key(tensor.path)) + " of dtype " +
                                tensor.dtype + " for torch.distributed.checkpoint: PyTorch has no such dtype");
  }
  if (!shards::is_inside(box, tensor.shape)) {
    throw std::invalid_argument("a chunk of " + safetensors::quote_name(flat_key(tensor.path)) +
                                " is not inside of the tensor");
  }
}

}  // namespace

class DcpFile::Content {
 public:
  Content(storage::FileSystem& file_system, const std::filesystem::path& folder, std::string file)
      : name(std::move(file)), output(storage::DurableFile(file_system, folder / name)) {}

  void add(DcpRecord record, uint64_t begin) {
    record.item = {.file = name, .begin = begin, .size = output.position() - begin};
    records.push_back(std::move(record));
  }

  std::string name;
  Output output;
  std::vector<DcpRecord> records;
  storage::FileRecord file_record;
};

DcpFile::DcpFile(storage::FileSystem& file_system, const std::filesystem::path& folder, int64_t rank, int64_t number)
    : content_(std::make_unique<Content>(file_system, folder,
                                         "__" + std::to_string(rank) + "_" + std::to_string(number) + ".distcp")) {}

DcpFile::~DcpFile() = default;

void DcpFile::add_tensor(const DcpTensor& tensor, const shards::Box& box,
                         const std::function<void(storage::ByteSink& sink)>& writer) {
  check_tensor(tensor, box);
  const auto begin = content_->output.position();
  const auto elements = shards::numel(box);
  pt::Pickler pickler;
  pickler.tensor(entry_of(tensor, box), elements);
  pt::ZipWriter zip(content_->output);
  zip.add("archive/data.pkl", pickler.take());
  zip.add("archive/byteorder", "little");
  zip.add_stream("archive/data/0", static_cast<uint64_t>(elements) * pt::dtype_by_name(tensor.dtype)->bytes, writer);
  zip.add("archive/version", "3\n");
  zip.finish();
  content_->add({.path = tensor.path, .is_tensor = true, .dtype = tensor.dtype, .shape = tensor.shape, .box = box},
                begin);
}

void DcpFile::add_value(const Path& path, const std::string& json_text) {
  json value;
  try {
    value = parse_shallow_json(json_text);
  } catch (const json::exception& error) {
    throw std::invalid_argument("the value " + safetensors::quote_name(flat_key(path)) +
                                " is damaged: " + error.what());
  }
  for_each_item(path, value, [&](const Path& place, const json& item) {
    const auto begin = content_->output.position();
    pt::ZipWriter zip(content_->output);
    zip.add("archive/data.pkl", pickled(place, item));
    zip.add("archive/byteorder", "little");
    zip.add("archive/version", "3\n");
    zip.finish();
    content_->add({.path = place}, begin);
  });
}

std::vector<DcpRecord> DcpFile::finish() {
  content_->file_record = content_->output.finish();
  return std::move(content_->records);
}

const storage::FileRecord& DcpFile::file_record() const {
  return content_->file_record;
}

std::map<std::string, storage::FileRecord> write_dcp_folder(
    storage::FileSystem& file_system, const std::filesystem::path& folder, const DcpContents& contents,
    const std::function<void(size_t tensor, size_t place, storage::ByteSink& sink)>& writer) {
  std::map<int64_t, std::vector<std::pair<size_t, size_t>>> by_rank;
  if (!contents.values.empty()) by_rank[0];
  for (size_t i = 0; i < contents.tensors.size(); ++i) {
    const auto& places = contents.tensors[i].second;
    for (size_t j = 0; j < places.size(); ++j) by_rank[places[j].rank].emplace_back(i, j);
  }
  std::map<std::string, storage::FileRecord> files;
  std::vector<DcpRecord> records;
  for (const auto& [rank, items] : by_rank) {
    DcpFile file(file_system, folder, rank);
    for (const auto& [path, value] : contents.values) {
      if (rank == 0) file.add_value(path, value);
    }
    for (const auto& [tensor, place] : items) {
      const auto& [description, places] = contents.tensors[tensor];
      file.add_tensor(description, places[place].box,
                      [&, i = tensor, j = place](storage::ByteSink& sink) { writer(i, j, sink); });
    }
    auto written = file.finish();
    files.emplace("__" + std::to_string(rank) + "_0.distcp", file.file_record());
    std::ranges::move(written, std::back_inserter(records));
  }
  files.emplace(".metadata", write_dcp_metadata(file_system, folder, records));
  return files;
}

}  // namespace ddp::dcp
