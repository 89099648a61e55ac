// Brings a checkpoint's files to every rank and puts them into a training state, all or nothing.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/detail/checkpoint/storage/mapped_file.h>

#include "checkpoint/chunked_tensors.h"
#include "checkpoint/failures.h"
#include "checkpoint/folders/sharded_folder.h"
#include "checkpoint/module_state.h"
#include "checkpoint/optimizer_state.h"
#include "checkpoint/run_content.h"
#include "checkpoint/storage/manifest.h"

namespace ddp {

/// A checkpoint in this process's memory, mapped or received and verified, but for tensors that are in chunks: those
/// are verified when they are read.
struct ReceivedRun {
  storage::Manifest manifest{};
  std::map<std::string, storage::Bytes> files{};
  /// Parts in chunks, by the name of the file of a whole part.
  std::map<std::string, std::unique_ptr<ChunkedPart>> chunked{};
  std::vector<std::string> entries{};            ///< of a .pt file without a model under the usual keys: see StateDict
  std::map<std::string, std::string> skipped{};  ///< of a .pt file: what is not read, see StateDict
  bool is_selected = false;                      ///< LoadOptions::key has been applied
};

/// Reads the checkpoint in `folder`, or a .pt file, on rank 0 and sends it, or reads it on every rank. Every rank must
/// call it. Returns the failures of all ranks, the same on every rank; empty if `run` was received.
Failure receive_run(storage::FileSystem& file_system, const std::filesystem::path& folder, CheckpointReader reader,
                    const GroupHandle& group, const std::string& key, ReceivedRun& run);

/// What is to be changed, verified but not yet changed. Not a collective.
class PreparedRun {
 public:
  /// Throws std::runtime_error or std::invalid_argument when the checkpoint does not fit the state.
  /// Reads the chunks that this rank needs; throws storage::DamagedCheckpoint where they are not what was written.
  PreparedRun(storage::FileSystem& file_system, const ReceivedRun& run, const std::filesystem::path& folder,
              const TrainingState& state, const LoadOptions& options, const GroupHandle& group);

  /// Objects with a load() of their own, which may refuse: throws and changes nothing.
  void apply_objects();
  /// Undoes apply_objects().
  void roll_back() noexcept;
  /// Model, optimizers, and a new random stream where the saved one cannot continue. Does not fail.
  void apply_tensors();

  const LoadedCheckpoint& result() const { return result_; }
  /// Whether the saved random streams are of another number of ranks, so that apply_tensors() begins new ones.
  bool starts_new_streams() const { return new_stream_; }

 private:
  struct Object {
    Stateful target{};
    std::string source{};  // for errors: the file and the name in it
    std::string value{};
    std::string before{};
  };

  void prepare_model(const ReceivedRun& run, const TrainingState& state, const LoadOptions& options);
  void prepare_objects(const ReceivedRun& run, const TrainingState& state);
  void prepare_rank_objects(const ReceivedRun& run, const TrainingState& state);
  const storage::Bytes* find(const ReceivedRun& run, const std::string& file, bool may_be_missing = false);
  std::optional<StoredPart> find_part(const ReceivedRun& run, const std::string& file);
  void refuse_missing(const ReceivedRun& run, const std::string& file);

  storage::FileSystem& file_system_;
  std::filesystem::path folder_;
  GroupHandle group_;
  bool strict_;
  std::deque<ChunkedTensors> chunks_;
  LoadedCheckpoint result_;
  MatchResult model_;
  std::deque<StoredTensors> optimizer_files_;  // referred to by optimizers_
  std::vector<std::unique_ptr<LoadedOptimizerState>> optimizers_;
  std::vector<Object> objects_;
  size_t objects_touched_ = 0;
  bool new_stream_ = false;
  uint64_t stream_seed_ = 0;
};

}  // namespace ddp
