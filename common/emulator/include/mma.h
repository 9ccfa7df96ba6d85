// nvcuda::wmma: every operation on a matrix is a rendezvous of the whole warp, executed once for all lanes.
//
// FP16 products are exact in FP32; for each element of D they are added to C in ascending k, each sum rounded to FP32,
// and an f16 accumulator is rounded once at the end. Tensor cores add in another order and with another internal width, so D
// agrees with a GPU's only within that.
//
// Which element a lane's x[i] holds is left open by CUDA, and changes with the schedule. On a GPU the elements of matrix_a
// and matrix_b lie in two lanes each; here each lies in one.
#pragma once

#include <emulator/prelude.h>
#include <cuda_fp16.h>

namespace nvcuda {
namespace wmma {
EMULATOR_BEGIN

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K> struct FragmentShape;
template <int M, int N, int K> struct FragmentShape<matrix_a, M, N, K> {
    static constexpr int OPERAND = 0, ROWS = M, COLS = K;
};
template <int M, int N, int K> struct FragmentShape<matrix_b, M, N, K> {
    static constexpr int OPERAND = 1, ROWS = K, COLS = N;
};
template <int M, int N, int K> struct FragmentShape<accumulator, M, N, K> {
    static constexpr int OPERAND = 2, ROWS = M, COLS = N;
};

template <class Use, int M, int N, int K, class T, class Layout = void> class fragment {
    static_assert((M == 16 && N == 16 && K == 16) || (M == 32 && N == 8 && K == 16) || (M == 8 && N == 32 && K == 16),
                  "WMMA has the shapes 16x16x16, 32x8x16 and 8x32x16 for f16");
    static_assert(std::is_same<T, __half>::value ||
                      (std::is_same<T, float>::value && std::is_same<Use, accumulator>::value),
                  "WMMA fragments are half, and accumulators half or float");
    static_assert(std::is_same<Use, accumulator>::value == std::is_same<Layout, void>::value,
                  "matrix_a and matrix_b have a layout; an accumulator has none");

  public:
    using Shape = FragmentShape<Use, M, N, K>;
    static constexpr int ELEMENTS = Shape::ROWS * Shape::COLS;
    static constexpr int num_elements = ELEMENTS / 32;
    using element_type = T;
    T x[num_elements];

    // Row-major index of each (lane, register), lanes outermost.
    static const uint16_t *elements() {
        constexpr int SIZE = ELEMENTS == 128 ? 0 : ELEMENTS == 256 ? 1 : 2;
        return emulator_current->layouts->element[Shape::OPERAND][SIZE];
    }
};

namespace detail {

template <class Fragment, class Pointer> struct MemoryOperand {
    Fragment *fragment;
    Pointer *memory;
    unsigned ld;
    bool row_major;

    Pointer &at(int element) const {
        int row = element / Fragment::Shape::COLS, col = element % Fragment::Shape::COLS;
        return row_major ? memory[size_t(row) * ld + col] : memory[size_t(col) * ld + row];
    }
};

// Reports the fragment's matrix in memory to the traced build.
template <class Fragment, class Pointer> bool declare([[maybe_unused]] const MemoryOperand<Fragment, Pointer> &operand) {
#ifdef EMULATOR_TRACED
    using Shape = typename Fragment::Shape;
    const void *rows[32];
    const uint32_t count = operand.row_major ? Shape::ROWS : Shape::COLS;
    for (uint32_t row = 0; row < count; ++row) rows[row] = operand.memory + size_t(row) * operand.ld;
    EmulatorMatrixAccess access{rows, count, uint32_t(Fragment::ELEMENTS / count * sizeof(Pointer)), sizeof(Pointer),
                                !std::is_const<Pointer>::value, EMULATOR_COUNT_LDMATRIX, 0};
    if (Shape::OPERAND == 2) {
        // A lane's two elements lie in one row of the product, which is one row of memory if that is row-major; but 8x32x16
        // is computed as its transpose. Pairs of FP16 values are transposed in registers (movmatrix) before a store.
        const bool in_one_row = operand.row_major == (Shape::ROWS != 8) || sizeof(Pointer) == 2;
        access.count = in_one_row ? EMULATOR_COUNT_ACCUMULATOR : EMULATOR_COUNT_TRANSPOSED;
        // Fragments of one type are spread over the lanes in one way.
        uint64_t place = reinterpret_cast<uint64_t>(operand.memory) * 0x9e3779b97f4a7c15u;
        uint64_t form = uint64_t(operand.ld) << 20 | uint64_t(count) << 10 | sizeof(Pointer) << 1 | uint64_t(operand.row_major);
        access.distribution = (place ^ form * 0xd6e8feb86659fd93u) | 1;
    }
    return emulator_matrix_access(&access);
#else
    return true;
#endif
}

constexpr const char *OUTSIDE = "it accesses memory that does not exist";

template <class Fragment, class T> const char *load(void *const *operands, uint32_t, uint32_t *) {
    if (!declare(*static_cast<MemoryOperand<Fragment, const T> *>(operands[0]))) return OUTSIDE;
    const uint16_t *elements = Fragment::elements();
    for (int lane = 0; lane < 32; ++lane) {
        auto *operand = static_cast<MemoryOperand<Fragment, const T> *>(operands[lane]);
        for (int i = 0; i < Fragment::num_elements; ++i) operand->fragment->x[i] = operand->at(*elements++);
    }
    return nullptr;
}

template <class Fragment, class T> const char *store(void *const *operands, uint32_t, uint32_t *) {
    if (!declare(*static_cast<MemoryOperand<Fragment, T> *>(operands[0]))) return OUTSIDE;
    const uint16_t *elements = Fragment::elements();
    for (int lane = 0; lane < 32; ++lane) {
        auto *operand = static_cast<MemoryOperand<Fragment, T> *>(operands[lane]);
        for (int i = 0; i < Fragment::num_elements; ++i) operand->at(*elements++) = operand->fragment->x[i];
    }
    return nullptr;
}

template <class Fragment, class T>
__forceinline__ void move(const char *name, const char *pointer_name, const char *stride_name, EmulatorExecute execute,
                          MemoryOperand<Fragment, T> operand, EmulatorSite site) {
    emulator::check_aligned(pointer_name, operand.memory, 32, site);
    emulator::check_aligned(stride_name, uint64_t(operand.ld) * sizeof(T), 16, site);
    emulator::collective(name, execute, operand, 0xffffffff, reinterpret_cast<uint64_t>(operand.memory),
                         uint64_t(operand.ld) << 1 | uint64_t(operand.row_major), 0, 0, EMULATOR_MATRIX_COPY, site);
}

template <class D, class A, class B, class C> struct MmaOperand {
    D *d;
    const A *a;
    const B *b;
    const C *c;
};

template <class Fragment> void scatter(float *matrix, int lane, const Fragment &fragment) {
    const uint16_t *elements = Fragment::elements() + lane * Fragment::num_elements;
    for (int i = 0; i < Fragment::num_elements; ++i) matrix[elements[i]] = float(fragment.x[i]);
}

template <int M, int N, int K, class D, class A, class B, class C>
const char *mma(void *const *operands, uint32_t, uint32_t *) {
    using Operand = MmaOperand<D, A, B, C>;
    float a[M * K], b[K * N], d[M * N];
    for (int lane = 0; lane < 32; ++lane) {
        auto *operand = static_cast<Operand *>(operands[lane]);
        scatter(a, lane, *operand->a);
        scatter(b, lane, *operand->b);
        scatter(d, lane, *operand->c);
    }
    for (int m = 0; m < M; ++m) {
        // Columns innermost: they are independent, so the host may vectorise without changing any sum's order.
        float sums[N];
        memcpy(sums, d + m * N, sizeof sums);
        for (int k = 0; k < K; ++k) {
            float left = a[m * K + k];
            for (int n = 0; n < N; ++n) sums[n] += left * b[k * N + n];
        }
        memcpy(d + m * N, sums, sizeof sums);
    }
    const uint16_t *elements = D::elements();
    for (int lane = 0; lane < 32; ++lane) {
        auto *operand = static_cast<Operand *>(operands[lane]);
        for (int i = 0; i < D::num_elements; ++i)
            operand->d->x[i] = static_cast<typename D::element_type>(d[*elements++]);
    }
    return nullptr;
}

} // namespace detail

template <class Use, int M, int N, int K, class T, class Layout, class Value>
__forceinline__ void fill_fragment(fragment<Use, M, N, K, T, Layout> &frag, const Value &value) {
    for (T &x : frag.x) x = static_cast<T>(value);
}

template <class Use, int M, int N, int K, class T, class Layout>
__forceinline__ void load_matrix_sync(fragment<Use, M, N, K, T, Layout> &frag, const T *memory, unsigned ld,
                                      EMULATOR_HERE) {
    using Fragment = fragment<Use, M, N, K, T, Layout>;
    detail::move("wmma::load_matrix_sync", "the pointer of wmma::load_matrix_sync",
                 "the stride in bytes of wmma::load_matrix_sync", detail::load<Fragment, T>,
                 detail::MemoryOperand<Fragment, const T>{&frag, memory, ld, std::is_same<Layout, row_major>::value},
                 EMULATOR_SITE);
}

template <int M, int N, int K, class T>
__forceinline__ void load_matrix_sync(fragment<accumulator, M, N, K, T> &frag, const T *memory, unsigned ld,
                                      layout_t layout, EMULATOR_HERE) {
    using Fragment = fragment<accumulator, M, N, K, T>;
    detail::move("wmma::load_matrix_sync", "the pointer of wmma::load_matrix_sync",
                 "the stride in bytes of wmma::load_matrix_sync", detail::load<Fragment, T>,
                 detail::MemoryOperand<Fragment, const T>{&frag, memory, ld, layout == mem_row_major}, EMULATOR_SITE);
}

template <int M, int N, int K, class T>
__forceinline__ void store_matrix_sync(T *memory, const fragment<accumulator, M, N, K, T> &frag, unsigned ld,
                                       layout_t layout, EMULATOR_HERE) {
    using Fragment = const fragment<accumulator, M, N, K, T>;
    detail::move("wmma::store_matrix_sync", "the pointer of wmma::store_matrix_sync",
                 "the stride in bytes of wmma::store_matrix_sync", detail::store<Fragment, T>,
                 detail::MemoryOperand<Fragment, T>{&frag, memory, ld, layout == mem_row_major}, EMULATOR_SITE);
}

template <int M, int N, int K, class TD, class LayoutA, class LayoutB, class TC>
__forceinline__ void mma_sync(fragment<accumulator, M, N, K, TD> &d, const fragment<matrix_a, M, N, K, __half, LayoutA> &a,
                              const fragment<matrix_b, M, N, K, __half, LayoutB> &b,
                              const fragment<accumulator, M, N, K, TC> &c, EMULATOR_HERE) {
    using A = fragment<matrix_a, M, N, K, __half, LayoutA>;
    using B = fragment<matrix_b, M, N, K, __half, LayoutB>;
    using C = fragment<accumulator, M, N, K, TC>;
    using D = fragment<accumulator, M, N, K, TD>;
    detail::MmaOperand<D, A, B, C> operand{&d, &a, &b, &c};
    emulator::collective("wmma::mma_sync", detail::mma<M, N, K, D, A, B, C>, operand, 0xffffffff, 0, 0,
                         uint64_t(M) * N * K, 0, EMULATOR_MMA, EMULATOR_SITE);
}

EMULATOR_END
} // namespace wmma
} // namespace nvcuda
