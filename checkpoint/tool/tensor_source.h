// The tensors of a checkpoint folder, a safetensors file, a .pt file, a model in several files, or a folder of shards
// or of torch.distributed.checkpoint, whichever it is. No LibTorch.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ddprun/checkpoint/safetensors_header.h>

#include "checkpoint/folders/sharded_folder.h"
#include "checkpoint/pt/elements.h"
#include "checkpoint/pt/pt_file.h"
#include "checkpoint/pt/run_state.h"
#include "checkpoint/pt/state_dict.h"
#include "checkpoint/storage/manifest.h"
#include "checkpoint/tool/raw_tensor.h"

namespace ddp::tool {

/// The name of a file in a checkpoint that holds what belongs to `name`: "optim-g.safetensors" of the optimizer "g".
inline constexpr std::string_view kModelFile = "model.safetensors";
inline constexpr std::string_view kOptimizerFile = "optim.safetensors";
inline constexpr std::string_view kNamedOptimizer = "optim-";
inline constexpr std::string_view kRanksFile = "ranks.safetensors";
inline constexpr std::string_view kShared = "shared-";
inline constexpr std::string_view kValuesFile = "trainer.json";
inline constexpr std::string_view kSafetensorsEnding = ".safetensors";
inline constexpr std::string_view kObjectEnding = ".state";

/// An opened source. Its bytes are verified, but those of tensors in chunks when they are read. Throws
/// std::runtime_error or std::system_error naming the file and what is wrong.
class TensorSource {
 public:
  /// A folder is a checkpoint, whose files are compared with their checksums; or holds a model's file or an index of
  /// several (model.safetensors.index.json); or is one of shards or of torch.distributed.checkpoint. `key` is the entry
  /// that holds the model's tensors, as LoadOptions::key.
  explicit TensorSource(const std::filesystem::path& path, const std::string& key = {});

  const char* kind() const { return kind_; }
  /// Reads what was not read yet and compares it with its checksums. Throws as the constructor.
  void verify();
  /// What the files of a checkpoint do not tell: whether its folder and its states of ranks are those of its manifest.
  /// Throws storage::DamagedCheckpoint, or std::runtime_error naming the file.
  void check_manifest() const;
  /// Whether every byte was compared with a checksum, after verify().
  bool has_checksums() const { return has_checksums_; }
  /// Files that hold tensors, by name. A single file's model and main optimizer have the name "", what else a .pt file
  /// holds the name that it would have in a checkpoint folder.
  const std::map<std::string, RawFile>& files() const { return files_; }
  /// Of a .pt file: its plain values, a JSON object; empty for none.
  const std::string& plain() const { return plain_; }
  /// Of a checkpoint folder: its manifest; else null. Of both: the program's values, a JSON object.
  const storage::Manifest* manifest() const { return manifest_.get(); }
  const std::string& values() const { return values_; }
  /// The objects that saved themselves, by file.
  const std::map<std::string, std::string>& objects() const { return objects_; }

 private:
  TensorSource() = default;

  void open_folder(const std::filesystem::path& path);
  void open_any_folder(const std::filesystem::path& path);
  void open_sharded(ShardedFolder folder);
  void add_part(const std::string& name, const ChunkedPart& part);
  void add_checkpoint_file(const std::string& name, storage::Bytes bytes, const std::filesystem::path& path);
  void read_small_tensors();
  void open_file(const std::filesystem::path& path, const std::string& key);
  void open_index(const std::filesystem::path& path);
  void select_model(const std::filesystem::path& path, const std::string& key);
  void open_safetensors(storage::Bytes bytes, const std::filesystem::path& path, const std::string& name);
  void add_run(const pt::PtFile& source, pt::RunState run, pt::CopyAllowance& allowance);
  RawTensor raw(const pt::PtFile& source, const std::string& name, const pt::TensorEntry& entry,
                pt::CopyAllowance& allowance);
  RawFile raw_file(const pt::PtFile& source, pt::StateDict state, pt::CopyAllowance& allowance);
  void open_pt(storage::Bytes bytes, const std::filesystem::path& path, const std::string& key);

  const char* kind_ = "";
  std::filesystem::path path_;
  bool has_checksums_ = false;
  std::map<std::string, RawFile> files_;
  std::unique_ptr<storage::Manifest> manifest_;
  std::unique_ptr<ShardedFolder> sharded_;  // in whose files the tensors' elements are
  std::string values_;
  std::string plain_;
  std::map<std::string, std::string> objects_;
  std::vector<storage::Bytes> mapped_;
  std::vector<std::shared_ptr<void>> owners_;  // of the bytes of .pt files
  std::vector<TensorSource> shards_;           // of a model in several files
  std::deque<std::string> owned_bytes_;        // bytes of tensors that were not contiguous
};

}  // namespace ddp::tool
