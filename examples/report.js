console.log(`report of ${new Date().toISOString().slice(0, 10)}`);
