// The memory of a tensor of deferred_init(), which may be freed as long as its values can be computed again.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace ddp::fsdp {

class Recorder;
struct RecordedOperator;

/// How the values of a storage are computed again.
struct StorageLog {
  std::shared_ptr<const RecordedOperator> last_writer;
  uint32_t checksum = 0;      ///< of the values that it left: what is written past the operators changes it
  uint64_t hashed_bytes = 0;  ///< what checksums of this storage have read so far
};

class DeferredStorage final : public c10::StorageImpl {
 public:
  /// Has the values of `memory`, which an operator has filled.
  DeferredStorage(at::DataPtr memory, size_t bytes, std::shared_ptr<Recorder> recorder, uint64_t number);
  ~DeferredStorage() override;

  Recorder& recorder() const { return *recorder_; }
  const std::shared_ptr<Recorder>& shared_recorder() const { return recorder_; }
  /// Which storage of its recorder it is.
  uint64_t number() const { return number_; }

  bool has_memory() const { return has_memory_; }
  /// Memory without values.
  void allocate_memory();
  /// Memory with the values of `computed`, which has as many bytes.
  void put_values(at::DataPtr computed);
  /// Frees the memory. From LibTorch 2.15 on an access throws then; an access through a pointer that was taken before
  /// ends the process by SIGSEGV, on the CPU.
  void free_memory();

  /// Starts to record whether a pointer is taken through which values may be written.
  void watch_pointers();
  /// Stops recording; returns whether such a pointer was taken.
  bool end_watch();

  std::optional<StorageLog> log{};       ///< nullopt: the values cannot be computed again, so the memory is not freed
  std::string name{};                    ///< of the parameter or buffer that it belongs to, "" if none is known
  bool stays_in_memory = false;          ///< pointers or other tensors may refer to it
  bool is_materialized = false;          ///< it has its final memory
  std::optional<size_t> listed_bytes{};  ///< its size when the recorder last used it, if the recorder may free it

 private:
  void set_refuses_access(bool refuses);
  void put_memory(at::DataPtr memory);

  std::shared_ptr<Recorder> recorder_;
  uint64_t number_;
  bool has_memory_ = true;
  bool is_watched_ = false;
  at::DataPtr without_pages_;  // what had the values, if it comes back at the same address
};

/// The storage of a tensor of deferred_init(), or of a view of one; null for all other tensors.
DeferredStorage* deferred_storage_of(const c10::TensorImpl& tensor);

/// The same for a storage.
DeferredStorage* as_deferred(const c10::Storage& storage);

}  // namespace ddp::fsdp
