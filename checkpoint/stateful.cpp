#include "ddprun/checkpoint/stateful.h"

#include <torch/csrc/api/include/torch/serialize/input-archive.h>
#include <torch/csrc/api/include/torch/serialize/output-archive.h>

namespace ddp::detail {

std::string save_archive(const std::function<void(torch::serialize::OutputArchive&)>& save) {
  torch::serialize::OutputArchive archive;
  save(archive);
  std::string bytes;
  archive.save_to([&](const void* data, size_t size) {
    bytes.append(static_cast<const char*>(data), size);
    return size;
  });
  return bytes;
}

void load_archive(const std::string& bytes, const std::function<void(torch::serialize::InputArchive&)>& load) {
  torch::serialize::InputArchive archive;
  archive.load_from(bytes.data(), bytes.size());
  load(archive);
}

}  // namespace ddp::detail
