// The running maximum of each part of a thread's rows: an array of arrays, which starts at -inf in
// two ways. nvcc loses the first way in every row but the first, without a warning.
//
// array_initialisers.ptx is what nvcc 13.0.88 makes of it:
//   nvcc -ptx -lineinfo -arch=sm_90a -std=c++17 common/ptx/tests/kernels/array_initialisers.cu \
//     -o common/ptx/tests/kernels/array_initialisers.ptx
// Its folder is cut from the names of files there.
constexpr int ROWS = 2;
constexpr int PARTS = 2;

struct Maximum {
    float value = -INFINITY;
};

struct PlainMaximum {
    float value;

    static __device__ PlainMaximum empty() {
        return {-INFINITY};
    }
};

extern "C" __global__ void by_member_initialisers(const float *scores, float *maxima) {
    Maximum maximum[ROWS][PARTS];
    for (int row = 0; row < ROWS; ++row) {
        for (int part = 0; part < PARTS; ++part) {
            const int at = row * PARTS + part;
            maxima[at] = fmaxf(maximum[row][part].value, scores[at]);
        }
    }
}

extern "C" __global__ void by_named_function(const float *scores, float *maxima) {
    PlainMaximum maximum[ROWS][PARTS];
    for (int row = 0; row < ROWS; ++row) {
        for (int part = 0; part < PARTS; ++part) {
            maximum[row][part] = PlainMaximum::empty();
        }
    }
    for (int row = 0; row < ROWS; ++row) {
        for (int part = 0; part < PARTS; ++part) {
            const int at = row * PARTS + part;
            maxima[at] = fmaxf(maximum[row][part].value, scores[at]);
        }
    }
}
