// Writes pickles that torch.load(weights_only=True) reads: plain values, containers, and tensors by reference to their
// storage. No LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "checkpoint/pt/opcodes.h"
#include "checkpoint/pt/value.h"

namespace ddp::pt {

/// Containers are written as open, items, close: `begin_dict(); text("lr"); real(0.1); end_dict();`.
class Pickler {
 public:
  Pickler();

  void none();
  void boolean(bool value);
  void integer(int64_t value);
  void whole_number(uint64_t value);
  void real(double value);
  void text(std::string_view value);
  void bytes(std::string_view value);
  void begin_dict();  ///< then key, value, key, value …
  void end_dict();
  void begin_list();
  void end_list();
  void begin_tuple();
  void end_tuple();
  void global(std::string_view module, std::string_view name);  ///< a class or a function
  void call();                                                  ///< the function and the tuple before it
  void make();                                                  ///< an object of the class and the tuple before it
  void build();                                                 ///< … whose state is the value before
  void put_memo(uint32_t number);                               ///< the value before, under this number
  void get_memo(uint32_t number);                               ///< that value again
  /// A tensor whose storage has `storage_elements` elements of its dtype.
  void tensor(const TensorEntry& entry, int64_t storage_elements);

  /// The finished pickle; nothing may be added afterwards.
  std::string take();

 private:
  void write_memo_op(Op small, Op large, uint32_t number);
  void integers(const std::vector<int64_t>& values);

  std::string out_;
};

}  // namespace ddp::pt
