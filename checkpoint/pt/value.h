// What a pickle of PyTorch's holds: plain values, containers, and tensors by reference to their storage. No LibTorch.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddp::pt {

/// A tensor as the pickle describes it: which storage, and how to look at it.
struct TensorEntry {
  std::string storage{};  ///< name of the storage's entry below data/
  std::string dtype{};    ///< as in Python, without "torch.": "float32"
  int64_t offset = 0;     ///< in elements
  std::vector<int64_t> sizes{};
  std::vector<int64_t> strides{};
  bool is_conj = false;  ///< the values are the stored ones' conjugates (tensor.conj())
  bool is_neg = false;   ///< … the stored ones' negatives (tensor.conj().imag)
};

/// A storage as the pickle refers to it.
struct StorageEntry {
  std::string key{};       ///< name of its entry below data/
  std::string dtype{};     ///< as in Python, without "torch."; empty for an UntypedStorage, which counts bytes
  int64_t elements = 0;    ///< of the whole storage
  int64_t view_begin = 0;  ///< where this view of it begins, in elements; files from before PyTorch 0.4 have views
};

enum class Kind {
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kBytes,
  kList,
  kTuple,
  kDict,
  kTensor,
  kStorage,
  kGlobal,
  kObject,
  kOtherTensor,  ///< a tensor of a kind that is not read; text() says which
  kOtherValue,   ///< a value that nothing here uses; text() says which
  kForeign,      ///< an object of a class that is not known, which is not read; text() says which
};

/// One value; a handle into the Pickle that it came from, cheap to copy. A container may be reached on several ways,
/// and a hostile one even through itself: who walks a pickle counts its steps.
class Value {
 public:
  struct Items {
    std::vector<Value> values;  ///< of a dict: key, value, key, value …
  };
  struct Object;

  Value() = default;
  explicit Value(bool value) : kind_(Kind::kBool) { content_.integer = value ? 1 : 0; }
  explicit Value(int64_t value) : kind_(Kind::kInt) { content_.integer = value; }
  explicit Value(double value) : kind_(Kind::kFloat) { content_.real = value; }
  Value(Kind kind, const std::string* text) : kind_(kind) { content_.text = text; }
  Value(Kind kind, Items* items) : kind_(kind) { content_.items = items; }
  explicit Value(const TensorEntry* tensor) : kind_(Kind::kTensor) { content_.tensor = tensor; }
  explicit Value(const StorageEntry* storage) : kind_(Kind::kStorage) { content_.storage = storage; }
  explicit Value(Object* object) : kind_(Kind::kObject) { content_.object = object; }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }

  /// Whether it may be the key of a dict: Python's lists, sets and dicts may not.
  bool is_hashable() const { return !is(Kind::kList) && !is(Kind::kDict); }

  // Each may be called for its own kind only.
  bool boolean() const { return content_.integer != 0; }
  int64_t integer() const { return content_.integer; }
  double real() const { return content_.real; }
  /// Of a text, bytes, or a global's "module.name"; what another tensor or value is.
  const std::string& text() const { return *content_.text; }
  std::vector<Value>& items() const { return content_.items->values; }
  const TensorEntry& tensor() const { return *content_.tensor; }
  const StorageEntry& storage() const { return *content_.storage; }
  Object& object() const { return *content_.object; }

  /// The value of the text `key` of a dict, or null.
  const Value* find(std::string_view key) const;

 private:
  Kind kind_ = Kind::kNone;
  union {
    int64_t integer;
    double real;
    const std::string* text;
    Items* items;
    const TensorEntry* tensor;
    const StorageEntry* storage;
    Object* object;
  } content_{};
};

/// An instance of a TorchScript class (torch::save writes those): its attributes are the state, a dict.
struct Value::Object {
  std::string class_name{};
  Value state{};
  /// Which attributes are parameters or buffers; null where that is not known. Of the file's ScriptClasses.
  const std::set<std::string>* weights = nullptr;
};

/// Owner of all values of one pickle.
class Pickle {
 public:
  Value root{};

  Value text(std::string value) { return {Kind::kText, keep(std::move(value))}; }
  Value bytes(std::string value) { return {Kind::kBytes, keep(std::move(value))}; }
  Value global(std::string value) { return {Kind::kGlobal, keep(std::move(value))}; }
  Value container(Kind kind, std::vector<Value> values = {}) {
    size_ += sizeof(Value::Items) + values.size() * sizeof(Value);
    return {kind, &items_.emplace_back(Value::Items{std::move(values)})};
  }
  Value tensor(TensorEntry entry) {
    size_ += sizeof(entry) + entry.storage.size() + (entry.sizes.size() + entry.strides.size()) * sizeof(int64_t);
    return Value(&tensors_.emplace_back(std::move(entry)));
  }
  Value storage(StorageEntry entry) {
    size_ += sizeof(entry) + entry.key.size();
    return Value(&storages_.emplace_back(std::move(entry)));
  }
  Value other_tensor(std::string what) { return {Kind::kOtherTensor, keep(std::move(what))}; }
  Value other_value(std::string what) { return {Kind::kOtherValue, keep(std::move(what))}; }
  Value foreign(std::string what) { return {Kind::kForeign, keep(std::move(what))}; }
  Value object(std::string class_name) {
    size_ += sizeof(Value::Object) + class_name.size();
    return Value(&objects_.emplace_back(Value::Object{.class_name = std::move(class_name)}));
  }

  /// Every tensor that was made, in that order.
  const std::deque<TensorEntry>& tensors() const { return tensors_; }

  /// Every storage that was referred to, in that order.
  const std::deque<StorageEntry>& storages() const { return storages_; }

  /// Every object that was made, in that order.
  std::deque<Value::Object>& objects() { return objects_; }

  /// Bytes of what was made so far, roughly. A value that is used often is made once, but what is made of it may copy
  /// it.
  size_t size() const { return size_; }

 private:
  const std::string* keep(std::string text) {
    size_ += sizeof(text) + text.size();
    return &texts_.emplace_back(std::move(text));
  }

  size_t size_ = 0;
  std::deque<std::string> texts_;
  std::deque<Value::Items> items_;
  std::deque<TensorEntry> tensors_;
  std::deque<StorageEntry> storages_;
  std::deque<Value::Object> objects_;
};

}  // namespace ddp::pt
